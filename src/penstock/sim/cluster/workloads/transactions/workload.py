"""The transactional clients of a run, and what they leave behind."""

from __future__ import annotations

import asyncio

from penstock.client.client import Client
from penstock.client.errors import check
from penstock.client.offsets import IsolationLevel
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.sim.cluster.history import CopyRoute
from penstock.sim.cluster.observers.transactions import TransactionObserver
from penstock.sim.cluster.spec import CopyKind
from penstock.sim.cluster.workloads.transactions.copier import Copier, watch_offsets
from penstock.sim.cluster.workloads.transactions.env import COPY, LEFT, RIGHT, TxnEnv
from penstock.sim.cluster.workloads.transactions.old_protocol import OldProducer
from penstock.sim.cluster.workloads.transactions.producers import TransactionalProducer
from penstock.sim.cluster.workloads.transactions.readers import (
    FollowerReader,
    IsolatedReader,
    read_all,
)
from penstock.sim.cluster.workloads.transactions.replayer import Replayer
from penstock.sim.cluster.workloads.transactions.two_phase import TwoPhaseProducer
from penstock.sim.cluster.workloads.workload import (
    RETRY_S,
    Clients,
    Workload,
    WorkloadEnv,
    create_topic,
    until_done,
)
from penstock.world.sim import Node as Machine

TOPICS = (LEFT, RIGHT, COPY)
GROUP = "copiers"
_FACTOR, _MIN_INSYNC = 3, 2
_FEATURE, _DOWNGRADE = "transaction.version", 2
_NEWEST_VERSION = 2
# The longest timeout of a transaction is 6 s. After it the coordinator aborts, and writes markers.
_ENDED_WITHIN_S = 15.0
_COMMITS_AFTER_FAULTS = 3
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class TransactionWorkload(Workload):
    def __init__(self, env: WorkloadEnv, observer: TransactionObserver) -> None:
        super().__init__(env)
        assert env.spec.transactions is not None
        self._transactions = env.spec.transactions
        self._observer = observer
        counts = self._transactions.partitions
        self._partitions = {
            topic: [TopicPartition(topic, index) for index in range(count)]
            for topic, count in zip(TOPICS, (*counts, counts[0]), strict=True)
        }
        self._env = TxnEnv(
            env.spec,
            self._transactions,
            env.history,
            env.rng,
            env.connected,
            env.over,
            (*self._partitions[LEFT], *self._partitions[RIGHT]),
        )
        self._route = CopyRoute(LEFT, COPY, GROUP)
        if self._transactions.copy is not None:
            env.history.copy = self._route
        for topic in TOPICS:
            env.history.durable_topics[topic] = True

    @property
    def _all(self) -> list[TopicPartition]:
        return [name for partitions in self._partitions.values() for name in partitions]

    async def prepare(self, machine: Machine) -> None:
        async with self.env.connected(machine) as client:
            for topic, partitions in self._partitions.items():
                configs = {"min.insync.replicas": str(_MIN_INSYNC)}
                if self.rng.random() < 0.5:
                    configs["segment.ms"] = "1000"
                await create_topic(client, topic, len(partitions), _FACTOR, configs)
            if self.rng.random() < 0.8:
                # Otherwise the internal topics are created while there are faults.
                await until_done(lambda: client.admin.fence_producers(["first"]))
                await until_done(lambda: client.groups.fetch_offsets(GROUP))
            version = self._transactions.version
            if version < _NEWEST_VERSION:
                await until_done(lambda: _set_version(client, version))

    def clients(self, first: Machine, second: Machine) -> Clients:
        env, spec = self._env, self._transactions
        found: Clients = []
        for number in range(spec.producers):
            machine = (first, second)[number % 2]
            found.append((machine, TransactionalProducer(env, f"tx{number}").run(machine)))
        for number in range(spec.old_producers):
            found.append((second, OldProducer(env, f"old{number}").run(second)))
        if spec.two_phase:
            found.append((first, TwoPhaseProducer(env, "two-phase").run(first)))
        if spec.replays:
            found.append((second, Replayer(env, self._observer.sent).run(second)))
        found += self._copiers(first, second)
        return [*found, *self._readers(first, second)]

    def _copiers(self, first: Machine, second: Machine) -> Clients:
        kind, source = self._transactions.copy, self._partitions[LEFT]
        if kind is None:
            return []
        count = 1 if kind is CopyKind.ASSIGNED else 2
        found: Clients = [(second, watch_offsets(self._env, second, GROUP, source))]
        for number in range(count):
            machine = (second, first)[number]
            copier = Copier(self._env, f"copy{number}", kind, self._route, source)
            found.append((machine, copier.run(machine)))
        return found

    def _readers(self, first: Machine, second: Machine) -> Clients:
        env, stable = self._env, self._observer.max_stable_offset
        committed = IsolatedReader(env, "committed reader", self._all, committed=True)
        uncommitted = IsolatedReader(env, "uncommitted reader", self._all, committed=False)
        follower = FollowerReader(env, self.rng.choice(self._all))
        return [
            (first, committed.run(first, stable)),
            (second, uncommitted.run(second, self.env.max_high_watermark)),
            (second, follower.run(second, stable)),
        ]

    async def settle(self, _machine: Machine) -> None:
        """Wait until some transactions are committed without faults."""
        wanted = self.history.totals.get("transactions committed", 0) + _COMMITS_AFTER_FAULTS
        while self.history.totals.get("transactions committed", 0) < wanted:
            await asyncio.sleep(RETRY_S)

    async def read_back(self, machine: Machine) -> None:
        """Wait until no transaction is open, and read everything."""
        history, partitions = self.history, self._all
        async with self.env.connected(machine) as client:
            history.final_transactions = await self._wait_ended(machine, client)
            history.final_committed = await read_all(
                client, partitions, IsolationLevel.READ_COMMITTED
            )
            history.final_uncommitted = await read_all(
                client, partitions, IsolationLevel.READ_UNCOMMITTED
            )
            if history.copy is not None:
                committed = await client.groups.fetch_offsets(
                    history.copy.group,
                    self._partitions[LEFT],
                    stable=not history.final_transactions,
                )
                history.final_copied = {name: entry.offset for name, entry in committed.items()}

    async def _wait_ended(self, machine: Machine, client: Client) -> dict[str, str]:
        """Wait until no coordinator knows an open transaction. Return those that are open when
        every timeout has passed."""
        now = machine.world.clock.monotonic
        deadline = now() + _ENDED_WITHIN_S
        while True:
            try:
                listed = await client.admin.list_transactions(states=_OPEN_STATES)
            except KafkaError:
                await asyncio.sleep(RETRY_S)
                continue
            still_open = {
                entry.transactional_id: entry.state
                for entries in listed.values()
                for entry in entries
            }
            if not still_open or now() > deadline:
                return still_open
            await asyncio.sleep(RETRY_S)


async def _set_version(client: Client, version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdate(
        feature=_FEATURE, max_version_level=version, upgrade_type=_DOWNGRADE
    )
    response = await client.cluster.call(
        UpdateFeaturesRequest(feature_updates=(update,)), UpdateFeaturesResponse
    )
    check(response.error_code, "UpdateFeatures")
