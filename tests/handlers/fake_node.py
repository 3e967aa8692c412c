"""A broker in memory for tests of handlers: the metadata and the decisions of the controller are
real, partitions are lists of batches.

Time is simulated: `run` runs a test without real waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from penstock.config.topic import LogConfig, log_config
from penstock.controller.brokers.fencing import unregister_broker
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import update_features
from penstock.controller.partitions.elections import elect_leaders
from penstock.controller.topics.create import create_topics
from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.handlers import load
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.handlers.encoded_topics import EncodedTopics
from penstock.handlers.parts import BrokerParts
from penstock.ids import NO_SEQUENCE, Buffer, TopicPartition
from penstock.log.admission import check_producers
from penstock.log.producers.replay import end_markers
from penstock.log.producers.state import ProducerStates
from penstock.log.producers.verification import VerificationGuard
from penstock.log.store import LogStore
from penstock.metadata.image import (
    BrokerImage,
    Endpoint,
    MetadataDelta,
    MetadataImage,
    SupportedFeature,
    TopicImage,
)
from penstock.node.broker.controllers import Controllers, ProducerIds
from penstock.node.delayed import ActionQueue
from penstock.node.fetch.fetches import Fetches
from penstock.node.metadata import MetadataView
from penstock.node.partition.counts import PartitionCounts, TopicTraffic
from penstock.node.partition.replica_moves import ReplicaMoves
from penstock.node.quorum.quorum import Quorum
from penstock.node.replication.replicas import Replicas
from penstock.node.shards.groups import Groups
from penstock.node.shards.internal_topics import auto_created
from penstock.node.shards.marker_writer import MarkerWriter
from penstock.node.shards.shard_set import ShardEnv
from penstock.node.shards.transactions import Transactions
from penstock.node.shards.verification import TxnVerifier
from penstock.node.supervisor import Supervisor
from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from penstock.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.protocol.schema import EncodedArray, EncodedParts, fields_of
from penstock.records.batch import read_header
from penstock.records.build import build_batch
from penstock.replica.throttle import ReplicationThrottles
from penstock.security.quotas.client_quotas import ClientQuotas, MutationQuota
from penstock.world.sim import Simulation
from tests.config.node_examples import COMBINED, read

R = TypeVar("R")
T = TypeVar("T")


class Appended(NamedTuple):
    base_offset: int
    end_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class ReadResult(NamedTuple):
    range: bytes | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]


class FakeDirectory:
    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.cordoned = False


class FakeStore:
    def __init__(self) -> None:
        self.directories = [FakeDirectory("one"), FakeDirectory("two")]
        self.moves = SimpleNamespace(under_way={})


class FakePartition:
    """`hold` stops the high watermark; appends raise `refusal`; if `is_cold`, the data must be read
    into the page cache before a read. `producers` has those of transactional batches."""

    def __init__(self, name: TopicPartition, directory: FakeDirectory, config: LogConfig) -> None:
        self.topic_partition = name
        self.directory = directory
        self.config = config
        self.env = SimpleNamespace(throttles=ReplicationThrottles())
        self.traffic = TopicTraffic()
        self.leader = SimpleNamespace(enough_in_sync=True)
        self.is_leader = True
        self.leader_epoch = 3
        self.earliest_epoch = -1
        self.is_behind_epoch = False
        self.log_start_offset = 0
        self.high_watermark = 0
        self.first_unstable: int | None = None
        self.producers = ProducerStates()
        self.aborted: list[tuple[int, int]] = []
        self.epochs: dict[int, tuple[int, int]] = {}
        self.times: dict[int, tuple[int, int, int]] = {}
        self.batches: list[tuple[int, int, bytes]] = []
        self.hold = False
        self.refusal: KafkaError | None = None
        self.watchers: dict[Callable[[], None], None] = {}
        self.reads = 0
        self.is_cold = False

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] if self.batches else self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self.first_unstable
        if unstable is None:
            unstable = self.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size(self) -> int:
        return sum(len(data) for _base, _end, data in self.batches)

    def append_produced(self, records: Buffer, *, acks_all: bool = False) -> Appended:
        return self.append(records, acks_all=acks_all)

    def append(
        self, records: Buffer, *, acks_all: bool = False, from_client: bool = True
    ) -> Appended:
        if self.refusal is not None:
            raise self.refusal
        base, header = self.log_end_offset, read_header(records)
        if header.is_transactional:
            markers = end_markers([header], records)
            check_producers(
                self.producers, [header], markers, only_verified=True, from_client=from_client
            )
            self.producers.apply(header._replace(base_offset=base), markers[0])
        self.batches.append((base, base + header.record_count, bytes(records)))
        if not self.hold:
            self.commit()
        return Appended(base, self.log_end_offset)

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int = NO_SEQUENCE,
        *,
        adds: bool,
    ) -> VerificationGuard | None:
        return self.producers.begin_verification(
            producer_id, producer_epoch, base_sequence, 0, adds=adds
        )

    def confirm_verification(self, guard: VerificationGuard) -> bool:
        return self.producers.confirm_verification(guard)

    def void_verification(self, guard: VerificationGuard) -> None:
        self.producers.void_verification(guard)

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        self.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        self.producers.advance(self.high_watermark)
        self.tell()

    def tell(self) -> None:
        for watcher in list(self.watchers):
            watcher()

    def is_committed(self, end_offset: int) -> bool:
        return end_offset <= self.high_watermark

    async def wait_committed(self, end_offset: int, deadline: float) -> None:
        changed = asyncio.Event()
        self.on_change(changed.set)
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_committed(end_offset):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late") from None

    def on_committed(
        self, end_offset: int, deadline: float, callback: Callable[[KafkaError | None], None]
    ) -> None:
        def ended(waiting: asyncio.Task[None]) -> None:
            error = waiting.exception()
            assert error is None or isinstance(error, KafkaError)
            callback(error)

        waiting = asyncio.ensure_future(self.wait_committed(end_offset, deadline))
        waiting.add_done_callback(ended)

    def check_leader(self, current_leader_epoch: int, *, allow_follower: bool = False) -> None:
        if current_leader_epoch not in (-1, self.leader_epoch):
            older = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                "another epoch",
            )

    def check_follower(self, current_leader_epoch: int, replica_id: int, broker_epoch: int) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this partition has no followers")

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool,
        at_least_one: bool,
        at_once: bool,
    ) -> ReadResult:
        """Return the whole batches that fit."""
        if at_once and self.is_cold:
            raise NotInMemory(self._warm)
        self.reads += 1
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not here")
        bound = self.last_stable_offset if committed_only else self.high_watermark
        data = b""
        for _base, end, batch in self.batches:
            if offset < end <= bound:
                if len(data) + len(batch) > max_bytes and (data or not at_least_one):
                    break
                data += batch
        return ReadResult(
            data or None,
            self.high_watermark,
            self.last_stable_offset,
            self.log_start_offset,
            self.aborted,
        )

    def _warm(self) -> None:
        self.is_cold = False

    def read_for_follower(
        self, offset: int, max_bytes: int, *, at_least_one: bool, at_once: bool = False
    ) -> ReadResult:
        data = b"".join(
            base.to_bytes(8, "big") + batch[8:] for base, end, batch in self.batches if end > offset
        )
        file_range = SimpleNamespace(read=lambda: data) if data else None
        return ReadResult(
            cast(Any, file_range),
            self.high_watermark,
            self.high_watermark,
            self.log_start_offset,
            [],
        )

    def on_change(self, callback: Callable[[], None]) -> None:
        self.watchers[callback] = None

    on_growth = on_change

    def off_change(self, callback: Callable[[], None]) -> None:
        self.watchers.pop(callback, None)

    async def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        return next(
            (offset for time, offset in sorted(self.times.items()) if time >= timestamp), None
        )

    async def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        return self.times[max(self.times)] if self.times else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.get(epoch, (-1, -1))

    def diverging(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "an unknown epoch")
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def delete_records(self, before_offset: int) -> int:
        target = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "above the high watermark")
        self.log_start_offset = max(self.log_start_offset, target)
        self.tell()
        return target

    @property
    def low_watermark(self) -> int:
        return self.log_start_offset


class FakeReplicas:
    """Partitions in `elsewhere` have another leader."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.counts = PartitionCounts()
        self.fetched_at: dict[int, float] = {}
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.elsewhere: set[TopicPartition] = set()

    def partition(self, topic: TopicImage, index: int) -> FakePartition:
        name = TopicPartition(topic.name, index)
        if name in self.elsewhere:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")
        if name not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return self.partitions[name]


class FakeQuorum:
    """A quorum with static voters."""

    kraft_version = 0


class FakeController:
    """The active controller: each decision is committed and applied immediately."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def decide(
        self,
        decide: Callable[[MetadataImage, T, ControllerContext], ControllerResult[R]],
        request: T,
        mutations: MutationQuota | None = None,
    ) -> R:
        await asyncio.sleep(0)
        context = replace(self._node.context, mutations=mutations)
        return self._node.apply(lambda image: decide(image, request, context))

    alter_configs = decide

    def mutation_quota(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota | None:
        quotas = self._node.parts.quotas.mutations
        return quotas.of_request(user, client_id, 0, is_strict=is_strict)

    def throttle_ms(self, mutations: MutationQuota) -> int:
        return mutations.throttle_ms(0)

    async def decide_in_slices(
        self,
        decide: Callable[[MetadataImage, T, ControllerContext], ControllerResult[R]],
        requests: Sequence[T],
    ) -> list[R]:
        return [await self.decide(decide, request) for request in requests]

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        return await self.decide(elect_leaders, request)

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        return await self.decide(unregister_broker, request)

    async def current_image(self) -> MetadataImage:
        await asyncio.sleep(0)
        return self._node.image

    def describe_quorum(self, _request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return DescribeQuorumResponse()

    async def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        return await self.decide(update_features, request)

    async def add_raft_voter(self, _request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        return AddRaftVoterResponse()

    async def remove_raft_voter(self, _request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        return RemoveRaftVoterResponse()


class FakeControllers:
    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._controller = FakeController(node)

    async def ask(
        self,
        request: T,
        decide: Callable[[Any, T], Awaitable[R]],
        *,
        version: int,
        requester: object = None,
    ) -> R:
        return await decide(self._controller, request)

    async def create_missing(
        self, names: Iterable[str], requester: object = None
    ) -> dict[str, KafkaError | None]:
        request = auto_created(self._node.config, names)
        response = await self._controller.decide(create_topics, request)
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
            if topic.error_code
            else None
            for topic in response.topics
        }


class FakeProducerIds:
    def __init__(self) -> None:
        self._ids = iter(range(1000, 2000))

    async def next(self) -> int:
        return next(self._ids)


async def _wait_applied(_offset: int) -> None:
    """`FakeNode.apply` applies every change immediately."""


class FakeNode:
    """Broker 1, registered and unfenced. `parts` are what its handlers get."""

    def __init__(self, simulation: Simulation, **settings: str) -> None:
        self.world = simulation.node("broker").world
        self.config = read(COMBINED, **settings)
        self.context = ControllerContext.of(self.config, self.world.rng.uuid)
        self.tasks: list[asyncio.Task[None]] = []
        self.metadata = MetadataView(self.world.clock, self.config, lambda _leader: False)
        features = (
            SupportedFeature("group.version", 0, 1),
            SupportedFeature("metadata.version", 7, 30),
            SupportedFeature("transaction.version", 0, 2),
        )
        broker = BrokerImage(
            1,
            5,
            UUID(int=500),
            (Endpoint("PLAINTEXT", "wildcard", 9092),),
            rack="rack-a",
            fenced=False,
            directories=(UUID(int=900),),
            features=features,
        )
        levels = {"group.version": 1, "metadata.version": 30, "transaction.version": 2}
        self.image = MetadataImage(brokers={1: broker}, features=levels, offset=41)
        store = FakeStore()
        for directory in store.directories:
            self.world.disk.make_dirs(directory.path)
        self.replicas = FakeReplicas(store)
        self.controllers = FakeControllers(self)
        shard_env = ShardEnv(
            self.world,
            1,
            self.metadata,
            cast(Any, self.replicas.partitions),
            self.controllers.create_missing,
            _wait_applied,
            self.spawn,
        )
        verifier = TxnVerifier(self.world, 1, self.metadata, lambda: self.transactions, self.spawn)
        self.groups = Groups(shard_env, self.config, verifier)
        self.producer_ids = FakeProducerIds()
        marker_writer = MarkerWriter(
            self.world, self.metadata, cast(Replicas, self.replicas), self.groups, 30.0
        )
        self.transactions = Transactions(
            shard_env, self.config, cast(ProducerIds, self.producer_ids), marker_writer.write
        )
        self.parts = BrokerParts(
            clock=self.world.clock,
            disk=self.world.disk,
            offload=self.world.offload,
            config=self.config,
            node_id=1,
            cluster_id="the-cluster",
            supervisor=cast(Supervisor, SimpleNamespace(spawn=self.spawn)),
            metadata=self.metadata,
            quorum=cast(Quorum, FakeQuorum()),
            controllers=cast(Controllers, self.controllers),
            replicas=cast(Replicas, self.replicas),
            replica_moves=ReplicaMoves(cast(LogStore, store), self.metadata, self.spawn),
            fetches=Fetches(
                self.world,
                self.metadata,
                cast(Replicas, self.replicas),
                ActionQueue(self.world.clock),
                self.spawn,
            ),
            groups=self.groups,
            transactions=self.transactions,
            marker_writer=marker_writer,
            verifier=verifier,
            producer_ids=cast(ProducerIds, self.producer_ids),
            encoded_topics=EncodedTopics(self.world.clock),
            quotas=ClientQuotas(),
        )
        self._began = self.world.clock.monotonic()

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        self.metadata.image = image

    @property
    def partitions(self) -> dict[TopicPartition, FakePartition]:
        return self.replicas.partitions

    @property
    def elsewhere(self) -> set[TopicPartition]:
        return self.replicas.elsewhere

    def elapsed(self) -> float:
        """Return the seconds since the test began."""
        return self.world.clock.monotonic() - self._began

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def create(self, name: str, partitions: int = 1, **configs: str) -> list[FakePartition]:
        topic = CreateTopicsRequest.Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        response = self.apply(
            lambda image: create_topics(image, CreateTopicsRequest(topics=(topic,)), self.context)
        )
        assert not response.topics[0].error_code, response
        return [self.partitions[TopicPartition(name, index)] for index in range(partitions)]

    def apply(self, decide: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Apply a decision of the controller: topics get partitions or lose them."""
        decision = decide(self.image)
        image, delta = self.image, MetadataDelta()
        if decision.records:
            image, delta = image.replay(decision.records, image.offset + len(decision.records))
        self.metadata.apply(image, delta)
        names = {
            TopicPartition(topic.name, index)
            for topic in image.topics.values()
            for index in topic.partitions
        }
        for deleted in self.partitions.keys() - names:
            self.partitions.pop(deleted).tell()
        for name in sorted(names - self.partitions.keys()):
            self.partitions[name] = FakePartition(
                name,
                self.replicas.store.directories[0],
                log_config(self.config, image.topic_configs(name.topic)),
            )
        self.groups.apply(image, delta)
        self.transactions.apply(image, delta)
        self.metadata.notify()
        return decision.response


def call(
    node: FakeNode, api_key: int, version: int, request: object, client_id: str = "test"
) -> Any:
    """Return what the handler returns: a response, an awaitable of a response, or None."""
    context = RequestContext(
        api_key,
        version,
        7,
        client_id,
        "PLAINTEXT",
        "10.0.0.1",
        9092,
        "10.0.0.2:5000",
        0.0,
        ConnectionHandle(),
    )
    return load(api_key)(node.parts, request, context)


async def answer(node: FakeNode, api_key: int, version: int, request: object) -> Any:
    """Return the response as a client decodes it, if it has fields in encoded form; otherwise check
    that it can be encoded in the version of its request."""
    returned = call(node, api_key, version, request)
    response = await returned if isinstance(returned, Awaitable) else returned
    parts = encode(response, version)
    if any(
        isinstance(getattr(response, field.name), EncodedArray | EncodedParts)
        for field in fields_of(type(response))
    ):
        return decode(type(response), version, b"".join(cast("list[bytes]", parts)))
    return response


def run(test: Callable[[FakeNode], Coroutine[Any, Any, T]], **settings: str) -> T:
    """Run a test in simulated time, which the event loop and the node share."""
    simulation = Simulation(seed=1)
    return simulation.run(test(FakeNode(simulation, **settings)))


def records(count: int = 1, value: bytes = b"value", **options: Any) -> bytes:
    return build_batch([(None, value, (), 1000)] * count, **options)
