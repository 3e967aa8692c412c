"""The shards of one internal topic on this broker: one for every partition that it leads.

A shard lives as long as this broker leads its partition in one leader epoch. A key, such as a group
id, belongs to the partition that its hash gives, as in Kafka.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

from penstock.coordinator.runtime.machine import StateMachine
from penstock.coordinator.runtime.step import Now, Step
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_CACHED_SHARD_KEYS
from penstock.metadata.image import MetadataDelta, MetadataImage, TopicImage
from penstock.node.metadata import MetadataView
from penstock.node.partition.partition import Partition
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.replies import Refused, coordinator_error
from penstock.node.shards.shard import Decide, Shard
from penstock.node.supervisor import Spawn
from penstock.records.compression import Codec
from penstock.world import World

M = TypeVar("M", bound=StateMachine[Any])
E = TypeVar("E")
R = TypeVar("R")

# A failed shard is reloaded after this delay: the cause of the failure may last.
_RELOAD_DELAY_S = 0.5
# Clients retry FindCoordinator while the topic is being created.
_WAIT_FOR_TOPIC_S = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardEnv:
    """The parts of a broker that shards use."""

    world: World
    node_id: int
    metadata: MetadataView
    partitions: Mapping[TopicPartition, Partition]
    create_topics: Callable[[list[str]], Awaitable[Mapping[str, KafkaError | None]]]
    # Waits until this node has applied the metadata up to an offset.
    wait_applied: Callable[[int], Awaitable[None]]
    spawn: Spawn


async def _nothing() -> None:
    """The default of `before_creation`."""


class ShardSet(Generic[M, E]):
    """`open` it first; from then on it follows the metadata through `apply`, which is called after
    the partitions have applied a change.

    `new_machine` makes the empty machine of a partition. `perform` carries out the effects of its
    steps. `before_creation` runs before the topic is created.
    """

    def __init__(
        self,
        env: ShardEnv,
        topic: str,
        new_machine: Callable[[Partition], M],
        *,
        commit_timeout_s: float,
        codec: Codec = Codec.NONE,
        perform: Callable[[E], None],
        before_creation: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.topic = topic
        self._env = env
        self._new_machine = new_machine
        self._commit_timeout_s = commit_timeout_s
        self._codec = codec
        self._perform = perform
        self._before_creation = before_creation
        self._shards: dict[int, Shard[M, E]] = {}
        self._watchers: dict[int, Callable[[], None]] = {}
        self._closed = False
        self._creation: asyncio.Task[None] | None = None
        self._loader = ShardLoader(env.world)
        # The feature levels that the machines have seen.
        self._features: Mapping[str, int] = {}

    @property
    def _image(self) -> MetadataImage:
        return self._env.metadata.image

    def open(self) -> None:
        topic = self._image.topics.get(self.topic)
        for index in topic.partitions if topic is not None else ():
            self._watch(index)

    def close(self) -> None:
        """Unload all shards; requests that wait are refused."""
        self._closed = True
        if self._creation is not None:
            self._creation.cancel()
        stops = KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {self._env.node_id} is stopping"
        )
        for index in list(self._shards):
            self._shards.pop(index).unload(stops)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for before, after in delta.topics.values():
            for topic in (before, after):
                if topic is not None and topic.name == self.topic:
                    for index in topic.partitions:
                        self._watch(index)
        features, self._features = self._features, image.features
        if (
            delta.brokers
            or delta.configs
            or image.features != features
            or any(_differ(before, after) for before, after in delta.topics.values())
        ):
            deleted = [
                before.name
                for before, after in delta.topics.values()
                if before is not None and after is None
            ]
            for shard in list(self._shards.values()):
                shard.image_changed(image, deleted)

    # Loading and unloading

    def _watch(self, index: int) -> None:
        """Follow a partition's role. It also changes without a change of the metadata: a partition
        leads only after its log was truncated."""
        self._check_role(index)
        partition = self._partition(index)
        if partition is not None:
            partition.on_change(self._watchers.setdefault(index, partial(self._check_role, index)))

    def _partition(self, index: int) -> Partition | None:
        return self._env.partitions.get(TopicPartition(self.topic, index))

    def _check_role(self, index: int) -> None:
        """Unload a shard whose partition or leader epoch has changed, and load a new one if this
        broker leads."""
        partition, shard = self._partition(index), self._shards.get(index)
        leads = (
            partition is not None
            and partition.is_leader
            and partition.directory.failure is None
            and not self._closed
        )
        if shard is not None and not (
            leads and shard.partition is partition and shard.epoch == partition.leader_epoch
        ):
            moved = f"broker {self._env.node_id} does not lead {self.topic}-{index} any more"
            self._shards.pop(index).unload(KafkaError(ErrorCode.NOT_COORDINATOR, moved))
            shard = None
        if partition is not None and leads and shard is None:
            self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> None:
        shard = self._shards[index] = Shard(
            self._env.world,
            partition,
            self._new_machine(partition),
            commit_timeout_s=self._commit_timeout_s,
            codec=self._codec,
            on_failed=partial(self._failed, index),
            perform=self._perform,
        )
        if not shard.load_empty():
            self._env.spawn(shard.load(self._loader))

    def _failed(self, index: int) -> None:
        failed = self._shards.get(index)
        if failed is not None:
            self._env.spawn(self._reload(index, failed))

    async def _reload(self, index: int, failed: Shard[M, E]) -> None:
        await asyncio.sleep(_RELOAD_DELAY_S)
        if self._shards.get(index) is failed:
            del self._shards[index]
            self._check_role(index)

    @property
    def machines(self) -> list[M]:
        """The state machines of the loaded shards, for metrics: what they have may not be committed
        yet."""
        return [shard.machine for shard in self._shards.values() if shard.loaded and shard.leads]

    # Coordinators

    async def find_coordinators(self, keys: Sequence[str]) -> list[int | None]:
        """Return the broker that coordinates each key, None if there is none now. Create the topic
        on first use."""
        if self.topic not in self._image.topics:
            await self._wait_topic()
        await self._env.metadata.wait_leaders([self.topic])
        # Clients send requests immediately, and librdkafka gives up if this broker has not created
        # its partition yet.
        await self._env.wait_applied(self._image.offset)
        return [self.coordinator_of(key) for key in keys]

    async def _wait_topic(self) -> None:
        """Create the topic in a task, and do not wait long for it: other requests of the same
        connection would wait as well, and without a controller that takes for ever."""
        if self._creation is None or self._creation.done():
            self._creation = asyncio.get_running_loop().create_task(self._create_topic())
            self._creation.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(_WAIT_FOR_TOPIC_S):
                await asyncio.shield(self._creation)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} is being created"
            ) from None

    async def _create_topic(self) -> None:
        await self._before_creation()
        error = (await self._env.create_topics([self.topic]))[self.topic]
        if error is None:
            return
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s cannot be created: %s", self.topic, error.message)
            raise error
        await self._env.metadata.wait_topics([self.topic])

    def coordinator_of(self, key: str) -> int | None:
        """Return the broker that coordinates a key, None if there is none now."""
        index = self.partition_of(key)
        if index is None:
            return None
        image = self._image
        leader = image.brokers.get(image.topics[self.topic].partitions[index].leader)
        return None if leader is None or leader.fenced else leader.id

    def partition_of(self, key: str) -> int | None:
        """Return the partition of a key, None if the topic does not exist yet."""
        topic = self._image.topics.get(self.topic)
        return None if topic is None else positive_hash(key) % len(topic.partitions)

    # Requests

    def decide(
        self, key: str, decide: Decide[M, E], refused: Refused[R], *, needs_writes: bool = True
    ) -> R | Awaitable[R]:
        """Run a step of the key's shard; return its reply or a future of it. Errors become
        responses through `refused`."""
        try:
            return self._shard_of(key).decide(decide, refused, needs_writes=needs_writes)
        except KafkaError as error:
            return refused(coordinator_error(error))

    def decide_at(self, index: int, decide: Decide[M, E], refused: Refused[R]) -> R | Awaitable[R]:
        """Run a step of a partition's shard, as `decide` does."""
        shard = self._shards.get(index)
        try:
            if shard is None:
                raise KafkaError(
                    ErrorCode.NOT_COORDINATOR,
                    f"broker {self._env.node_id} does not lead {self.topic}-{index}",
                )
            return shard.decide(decide, refused)
        except KafkaError as error:
            return refused(coordinator_error(error))

    def partition_for(self, key: str) -> Partition:
        """Return the partition of the key's shard. KafkaError: this broker does not coordinate."""
        return self._shard_of(key).partition

    def act(self, key: str, decide: Callable[[M, Now], Step[E]]) -> None:
        """Run a step of the key's shard that no request waits for. KafkaError: it was refused."""
        self._shard_of(key).act(decide)

    def epoch_of(self, key: str) -> int | None:
        """Return the leader epoch in which the key's shard was loaded; None if it is not."""
        index = self.partition_of(key)
        shard = None if index is None else self._shards.get(index)
        return shard.epoch if shard is not None and shard.loaded and shard.leads else None

    def read(self, key: str, look: Callable[[M], R], refused: Refused[R]) -> R | Awaitable[R]:
        """Return what `look` sees of the key's shard, or a future of it."""
        try:
            return self._shard_of(key).read(look, refused)
        except KafkaError as error:
            return refused(coordinator_error(error))

    async def read_all(self, look: Callable[[M], R], refused: Refused[R]) -> list[R]:
        """Return one result per shard. Other work has its turn after each of them."""
        results = []
        for shard in list(self._shards.values()):
            result = self._read(shard, look, refused)
            results.append(await result if inspect.isawaitable(result) else result)
            await asyncio.sleep(0)
        return results

    @staticmethod
    def _read(shard: Shard[M, E], look: Callable[[M], R], refused: Refused[R]) -> R | Awaitable[R]:
        try:
            return shard.read(look, refused)
        except KafkaError as error:
            return refused(coordinator_error(error))

    def _shard_of(self, key: str) -> Shard[M, E]:
        index = self.partition_of(key)
        shard = None if index is None else self._shards.get(index)
        if shard is not None:
            return shard
        broker_id = self._env.node_id
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} is stopping")
        if (
            index is not None
            and self._partition(index) is None
            and self.coordinator_of(key) == broker_id
        ):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"broker {broker_id} is creating {self.topic}-{index}",
            )
        raise KafkaError(
            ErrorCode.NOT_COORDINATOR, f"broker {broker_id} does not coordinate {key!r}"
        )


def _differ(before: TopicImage | None, after: TopicImage | None) -> bool:
    """Return True if machines can see the change. Leaders do not matter to them."""
    return before is None or after is None or len(before.partitions) != len(after.partitions)


@lru_cache(MAX_CACHED_SHARD_KEYS)
def positive_hash(text: str) -> int:
    """Java's String.hashCode, without its sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & 0xFFFFFFFF
    signed = value - (value >> 31 << 32)
    return abs(signed) & 0x7FFFFFFF
