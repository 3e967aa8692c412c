"""Walks over a shard of the transaction coordinator: the machine and its runner, on a log that the
walk commits, refuses to write to, and loses the tail of. Markers are written, lost and repeated in
any order, and requests of clients come again late. `txn_laws` has the laws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

from penstock.coordinator.runtime.step import Now, Step, Ticket
from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID, TransactionMachine
from penstock.coordinator.transactions.records import record
from penstock.coordinator.transactions.table import TransactionSettings, WriteMarkers
from penstock.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, Transaction
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import TRANSACTION_TOPIC
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.records.compression import Codec
from penstock.sim.explore.shard_loop import TurnLoop
from penstock.sim.explore.shard_partition import MemoryLoader, MemoryShardPartition
from penstock.sim.explore.shard_runner import ExploredShard
from penstock.sim.explore.txn_clients import TxnClient
from penstock.sim.explore.txn_laws import ENDED, STUCK, Sender, TxnLaws
from penstock.sim.explore.walk import Choices, Explorer, LawBroken

TURNS = 400
WALL_MS = 1_700_000_000_000
# Two clients of each transactional id: one of them is a zombie.
IDS = ("a", "a", "b", "c")
# After so long without faults every request has a reply, and every transaction has ended.
RECOVERY_S = 300
_KEPT_REQUESTS = 60
_REFUSALS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)

Reply = Callable[[object], None]
Decide = Callable[[TransactionMachine, Ticket, Now], Step[WriteMarkers]]


class _Writing:
    """Markers that are on their way."""

    def __init__(self, effect: WriteMarkers, shard: object) -> None:
        self.effect = effect
        self.shard = shard
        self.left = list(effect.partitions)


class TxnWalk:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.lines: list[str] | None = None
        self._loop = TurnLoop()
        self._partition = MemoryShardPartition(TRANSACTION_TOPIC)
        self.transaction_version = (2, 2, 2, 1, 0)[choices.below(5)]
        self.two_phase = choices.below(2) == 0
        self._expires = choices.below(5) == 0
        # Percentages of turns.
        self._commits = (15, 30)[choices.below(2)]
        self._faults = (1, 4)[choices.below(2)]
        self.lives, self._producer_ids = count(1), count(1_000)
        self._waiting: list[tuple[asyncio.Future[Any], Reply]] = []
        self._sent: list[Callable[[], None]] = []
        self._markers: list[_Writing] = []
        self._replies = self._moves = self._ended = 0
        if choices.below(3) == 0:
            self._exhaust_epochs()
        self._laws = TxnLaws(self._partition, self._new_machine())
        self._laws.restart(self._laws.shadow)
        self._clients = [TxnClient(self, transactional_id) for transactional_id in IDS]
        with self._loop.running():
            self._shard = self._load()

    def _exhaust_epochs(self) -> None:
        """Begin with producers that have few epochs left."""
        for number, transactional_id in enumerate(dict.fromkeys(IDS)):
            epoch = LAST_CLIENT_EPOCH - self.choices.below(4)
            initialized = Transaction(transactional_id, number, epoch, 20_000, WALL_MS)
            self._partition.records.append(record(initialized, 2)[0])
        self._partition.ends.append(self._partition.log_end_offset)
        self._partition.committed = self._partition.log_end_offset

    def note(self, *parts: object) -> None:
        if self.lines is not None:
            self.lines.append(" ".join(map(str, parts)))

    def counts(self) -> dict[str, int]:
        return {
            "elections": self._moves,
            "committed": self._partition.committed,
            "replies": self._replies,
            "ended": self._ended,
        }

    def close(self) -> None: ...

    # The shard

    def _settings(self) -> TransactionSettings:
        return TransactionSettings(
            id_expiration_ms=5_000 if self._expires else 604_800_000,
            id_expiration_interval_ms=2_000,
            two_phase_commit=self.two_phase,
            transaction_version=self.transaction_version,
        )

    def _new_machine(self) -> TransactionMachine:
        return TransactionMachine(self._settings, self._partition.leader_epoch)

    def _load(self) -> ExploredShard[TransactionMachine, WriteMarkers]:
        clock = SimpleNamespace(
            monotonic=self._loop.time, now_ms=lambda: WALL_MS + int(self._loop.time() * 1000)
        )
        world: Any = SimpleNamespace(clock=clock)
        partition: Any = self._partition
        shard: ExploredShard[TransactionMachine, WriteMarkers] = ExploredShard(
            world,
            partition,
            self._new_machine(),
            commit_timeout_s=5.0,
            codec=Codec.NONE,
            on_failed=self._on_failed,
            perform=self._perform,
        )
        shard.observe(self._laws)
        self._shard = shard
        if not shard.load_empty():
            loader: Any = MemoryLoader()
            self._loop.create_task(shard.load(loader))
        return shard

    def _on_failed(self) -> None:
        raise LawBroken("the machine does not fail", "the shard is loaded again")

    def _fail_over(self) -> None:
        """Move the coordinator away and back; a part of what is not committed is lost."""
        ends = self._partition.uncommitted_ends()
        kept = ends[self.choices.below(len(ends))]
        self.note("failover: keeps", kept, "of", self._partition.log_end_offset)
        self._moves += 1
        self._partition.fail_over(kept)
        self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
        self._laws.restart(self._new_machine())
        self._shard = self._load()
        self._partition.commit(kept)
        self._loop.pass_time(0)
        self._laws.loaded(self._shard.machine)

    # Requests

    def _ask(
        self,
        text: str,
        decide: Decide,
        sender: Sender | None,
        on_reply: Reply,
        *,
        initializes: bool = False,
    ) -> None:
        """Send a request to the shard. An error is a reply too."""
        self.note(text)
        self._laws.sender, self._laws.is_initializing = sender, initializes
        try:
            reply: Any = self._shard.decide(decide, lambda error: error)
        except KafkaError as error:
            reply = error
        finally:
            self._laws.sender, self._laws.is_initializing = None, False
        if isinstance(reply, asyncio.Future):
            self._waiting.append((reply, on_reply))
        else:
            on_reply(reply)

    def _keep(self, repeat: Callable[[], None]) -> None:
        self._sent = [*self._sent[-_KEPT_REQUESTS:], repeat]

    def initialize(
        self, name: str, request: InitProducerIdRequest, new_id: int | None, on_reply: Reply
    ) -> None:
        def replied(reply: object) -> None:
            if reply is NEEDS_PRODUCER_ID:
                self.initialize(name, request, next(self._producer_ids), on_reply)
            else:
                on_reply(reply)

        self._ask(
            f"{name}: {request}",
            lambda machine, ticket, now: machine.init_producer_id(request, new_id, ticket, now),
            None,
            replied,
            initializes=True,
        )

    def add(
        self,
        name: str,
        producer: tuple[int, int],
        partitions: list[TopicPartition],
        verify_only: bool,
        version: int,
        sender: Sender | None,
        on_reply: Reply,
    ) -> None:
        send = partial(
            self._ask,
            f"{name}: {sender or 'a leader'} adds {[each.partition for each in partitions]}",
            lambda machine, ticket, now: machine.add_partitions(
                name, *producer, partitions, verify_only, version, ticket, now
            ),
            sender,
        )
        self._keep(lambda: send(_ignore))
        send(on_reply)

    def end_txn(
        self,
        name: str,
        request: EndTxnRequest,
        version: int,
        new_id: int | None,
        sender: Sender,
        on_reply: Reply,
    ) -> None:
        def send(new_id: int | None, on_reply: Reply) -> None:
            def replied(reply: object) -> None:
                if reply is NEEDS_PRODUCER_ID:
                    send(next(self._producer_ids), on_reply)
                else:
                    on_reply(reply)

            self._ask(
                f"{name}: {request} v{version}",
                lambda machine, ticket, now: machine.end_txn(request, version, new_id, ticket, now),
                sender,
                replied,
            )

        if sender.bumps:
            # A late one of the old protocol may end the next transaction.
            self._keep(lambda: send(None, _ignore))
        send(new_id, on_reply)

    def acknowledge(self, name: str, sent: tuple[int, int], commit: bool) -> None:
        self._ended += 1
        self._laws.acknowledged[name, *sent] = commit

    def laws_own(self, sender: Sender, reply: InitProducerIdResponse) -> None:
        """A client that keeps a prepared transaction owns it from now on."""
        self._laws.own(sender, reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch)

    # Markers

    def _perform(self, effect: WriteMarkers) -> None:
        self.note("markers:", effect)
        self._laws.performed(effect)
        self._markers.append(_Writing(effect, self._shard))

    def _write_markers(self) -> None:
        """Write some markers, in any order, also those of a former coordinator."""
        if not self._markers:
            return
        writing = self._markers[self.choices.below(len(self._markers))]
        count = 1 + self.choices.below(len(writing.left)) if writing.left else 0
        for _ in range(count):
            partition = writing.left.pop(self.choices.below(len(writing.left)))
            self._laws.written(writing.effect, partition)
        if not writing.left:
            self.note("written:", writing.effect)
            if self.choices.below(4):
                # Otherwise the coordinator learns it a second time, later.
                self._markers.remove(writing)
            self._complete([writing.effect])

    def _complete(self, effects: list[WriteMarkers]) -> None:
        try:
            self._shard.act(lambda machine, now: machine.markers_written(effects, now))
        except KafkaError:
            return

    # Turns

    def turn(self) -> None:
        with self._loop.running():
            self._laws.is_checking_traces = self.choices.below(4) == 0
            self._act()
        self._learn()

    def _act(self) -> None:
        choices, dice = self.choices, self.choices.below(100)
        if dice < self._faults:
            self._fault()
        elif dice < 8:
            seconds = (0.1, 0.1, 1.0, 4.0, 21.0)[choices.below(5)]
            self.note(seconds, "s pass")
            self._loop.pass_time(seconds)
        elif dice < 8 + self._commits:
            ends = self._partition.uncommitted_ends()
            self._partition.commit(ends[-1 if choices.below(2) else choices.below(len(ends))])
        elif dice < 50:
            self._write_markers()
        elif dice < 58 and self._sent:
            self.note("late:")
            self._sent[choices.below(len(self._sent))]()
        else:
            self._clients[choices.below(len(self._clients))].act()

    def _fault(self) -> None:
        dice = self.choices.below(10)
        if dice < 4:
            self._fail_over()
        elif dice < 7:
            self._partition.refusal = _REFUSALS[self.choices.below(2)]
            self.note("the next append is refused:", self._partition.refusal)
        elif dice < 9:
            leader = self._partition.leader
            leader.enough_in_sync = not leader.enough_in_sync
            self.note("enough in sync:", leader.enough_in_sync)
            self._partition.notify()
        else:
            self._change_version()

    def _change_version(self) -> None:
        self.transaction_version = self.choices.below(3)
        self.note("transaction.version", self.transaction_version)
        image: Any = SimpleNamespace()
        self._shard.image_changed(image)

    def _learn(self) -> None:
        """Give the replies that have arrived to the clients."""
        done = [waiting for waiting in self._waiting if waiting[0].done()]
        if done:
            self._waiting = [waiting for waiting in self._waiting if not waiting[0].done()]
            self._replies += len(done)
            with self._loop.running():
                for future, on_reply in done:
                    on_reply(future.result())
            self._laws.check_acknowledged()

    # Recovery

    def end(self) -> None:
        """Everything is committed, markers are written, and no one sends: every request gets a
        reply, and every transaction that has a timeout ends."""
        self._partition.refusal = None
        self._partition.leader.enough_in_sync = True
        with self._loop.running():
            self._fail_over()
        for _second in range(RECOVERY_S):
            with self._loop.running():
                self._partition.commit(self._partition.log_end_offset)
                while self._markers:
                    self._write_markers()
                self._loop.pass_time(1.0)
            self._learn()
            if not self._waiting and not self._open():
                break
        else:
            if self._waiting:
                raise LawBroken(STUCK, f"{len(self._waiting)} requests still wait")
            raise LawBroken(ENDED, f"{self._open()} are still open")
        with self._loop.running():
            self._fail_over()
            self._shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "the walk ends"))

    def _open(self) -> list[str]:
        return [
            name
            for name, transaction in self._shard.machine.table.by_id.items()
            if transaction.is_prepared or transaction.due_ms is not None
        ]


def _ignore(_reply: object) -> None:
    """The reply of a request that was sent again."""


TXN = Explorer("transactions", TURNS, TxnWalk)
