"""The coordinator of groups on this broker: a shard for every partition of `__consumer_offsets`
that it leads, and who has which.

A shard lives as long as this broker leads its partition in one leader epoch. What it decides and
how it is written is elsewhere: in the coordinator, and in `group_shard`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

from penstock import coordinator
from penstock.config import group_settings as settings
from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_CACHED_GROUP_IDS
from penstock.metadata.image import MetadataDelta, MetadataImage, TopicImage
from penstock.node.metadata import MetadataView
from penstock.node.partition.partition import Partition
from penstock.node.shards.group_settings import group_settings
from penstock.node.shards.group_shard import Decide, GroupShard
from penstock.node.shards.group_topic import OFFSETS_TOPIC
from penstock.node.shards.loading import Loading
from penstock.node.shards.tickets import Refused, coordinator_error
from penstock.node.supervisor import Spawn
from penstock.records.compression import Codec
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.groups.shard import Shard

R = TypeVar("R")

# A shard that was lost by a failed append is loaded again after this: what made it fail may last.
_LOAD_AGAIN_S = 0.5
# Clients ask again when there is no coordinator yet.
_WAIT_FOR_TOPIC_S = 0.5

logger = logging.getLogger(__name__)


class Groups:
    """Nothing before `open`; from then on every change of the metadata through `apply`, after the
    partitions have had it."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        metadata: MetadataView,
        partitions: Mapping[TopicPartition, Partition],
        create_topics: Callable[[list[str]], Awaitable[Mapping[str, KafkaError | None]]],
        wait_applied: Callable[[int], Awaitable[None]],
        spawn: Spawn,
    ) -> None:
        self._world = world
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._create_topics = create_topics
        self._wait_applied = wait_applied
        self._spawn = spawn
        self._shards: dict[int, GroupShard] = {}
        self._watchers: dict[int, Callable[[], None]] = {}
        self._closed = False
        self._creating: asyncio.Task[None] | None = None
        self._loading = Loading(world)

    def open(self) -> None:
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        for index in topic.partitions if topic is not None else ():
            self._watch(index)

    def close(self) -> None:
        """Whoever waits is answered, and nobody is served any more: others coordinate now, or
        nobody does."""
        self._closed = True
        if self._creating is not None:
            self._creating.cancel()
        for index in list(self._shards):
            self._drop(index, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker stops"))

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for before, after in delta.topics.values():
            for topic in (before, after):
                for index in (
                    topic.partitions if topic is not None and topic.name == OFFSETS_TOPIC else ()
                ):
                    self._watch(index)
        if (
            delta.brokers
            or delta.configs
            or any(_differ(before, after) for before, after in delta.topics.values())
        ):
            for shard in list(self._shards.values()):
                shard.image_changed(image)

    # Which shards are here

    def _watch(self, index: int) -> None:
        """A partition tells of its role, also when it gets one without a change of the metadata:
        after its log was cut."""
        self._look(index)
        partition = self._partition(index)
        if partition is not None:
            partition.on_change(self._watchers.setdefault(index, partial(self._look, index)))

    def _partition(self, index: int) -> Partition | None:
        return self._partitions.get(TopicPartition(OFFSETS_TOPIC, index))

    def _look(self, index: int) -> None:
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
            self._drop(
                index,
                KafkaError(
                    ErrorCode.NOT_COORDINATOR,
                    f"this broker does not lead {OFFSETS_TOPIC}-{index} any more",
                ),
            )
            shard = None
        if partition is not None and leads and shard is None:
            self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> None:
        config = self._config
        shard = self._shards[index] = GroupShard(
            self._world,
            partition,
            self._new_shard(),
            commit_timeout_s=config[settings.OFFSETS_COMMIT_TIMEOUT_MS] / 1000,
            codec=Codec(config[settings.OFFSETS_TOPIC_COMPRESSION_CODEC]),
            on_lost=partial(self._lost, index),
        )
        if not shard.begin():
            self._spawn(shard.load(self._loading))

    def _new_shard(self) -> Shard:
        # Loaded when first needed, as handlers are: a node must start quickly.
        from penstock.coordinator.groups.shard import Shard

        return Shard(
            group_settings(self._metadata.broker_config),
            self._metadata.image,
            self._world.rng.uuid,
        )

    def _lost(self, index: int) -> None:
        self._spawn(self._load_again(index, self._shards[index]))

    async def _load_again(self, index: int, lost: GroupShard) -> None:
        await asyncio.sleep(_LOAD_AGAIN_S)
        if self._shards.get(index) is lost:
            del self._shards[index]
            self._look(index)

    def _drop(self, index: int, error: KafkaError) -> None:
        self._shards.pop(index).drop(error)

    # Who has a group

    async def find(self, group_ids: Sequence[str]) -> list[int | None]:
        """The brokers that coordinate groups; None where nobody does now. The first who asks has
        the topic of offsets made."""
        if OFFSETS_TOPIC not in self._metadata.image.topics:
            await self._wait_topic()
        await self._metadata.wait_leaders([OFFSETS_TOPIC])
        # Clients come at once, and librdkafka gives up where the shard of a partition that is still
        # being made refuses them.
        await self._wait_applied(self._metadata.image.offset)
        return [self._coordinator_of(group_id) for group_id in group_ids]

    async def _wait_topic(self) -> None:
        """It is made by a task of its own, and not waited for long: what else the same connection
        asks for would have to wait as well, and without controllers that takes for ever."""
        if self._creating is None or self._creating.done():
            self._creating = asyncio.get_running_loop().create_task(self._create_topic())
            self._creating.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(_WAIT_FOR_TOPIC_S):
                await asyncio.shield(self._creating)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created"
            ) from None

    async def _create_topic(self) -> None:
        await _import_piecemeal()
        error = (await self._create_topics([OFFSETS_TOPIC]))[OFFSETS_TOPIC]
        if error is None:
            return
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s cannot be created: %s", OFFSETS_TOPIC, error.message)
            raise error
        await self._metadata.wait_topics([OFFSETS_TOPIC])

    def _coordinator_of(self, group_id: str) -> int | None:
        index = self.partition_of(group_id)
        if index is None:
            return None
        image = self._metadata.image
        leader = image.brokers.get(image.topics[OFFSETS_TOPIC].partitions[index].leader)
        return None if leader is None or leader.fenced else leader.id

    def partition_of(self, group_id: str) -> int | None:
        """Of the topic of offsets; None where that is not there yet."""
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else positive_hash(group_id) % len(topic.partitions)

    def _shard_of(self, group_id: str) -> GroupShard:
        index = self.partition_of(group_id)
        shard = None if index is None else self._shards.get(index)
        if shard is not None:
            return shard
        broker_id = self._config.node_id
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} stops")
        if (
            index is not None
            and self._partition(index) is None
            and self._coordinator_of(group_id) == broker_id
        ):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{OFFSETS_TOPIC}-{index} is being made on broker {broker_id}",
            )
        raise KafkaError(
            ErrorCode.NOT_COORDINATOR, f"broker {broker_id} does not coordinate group {group_id}"
        )

    # What handlers ask

    def ask(
        self, group_id: str, decide: Decide, refused: Refused[R], *, writes: bool = True
    ) -> R | Awaitable[R]:
        """What the group's shard decides, or why it does not: an answer, or a future of one."""
        try:
            return self._shard_of(group_id).ask(decide, refused, writes=writes)
        except KafkaError as error:
            return refused(coordinator_error(error))

    def read(
        self, group_id: str, look: Callable[[Shard], R], refused: Refused[R]
    ) -> R | Awaitable[R]:
        try:
            return self._shard_of(group_id).read(look, refused)
        except KafkaError as error:
            return refused(coordinator_error(error))

    def read_all(self, look: Callable[[Shard], R], refused: Refused[R]) -> list[R | Awaitable[R]]:
        """Of every shard here."""
        return [self._read(shard, look, refused) for shard in self._shards.values()]

    def _read(
        self, shard: GroupShard, look: Callable[[Shard], R], refused: Refused[R]
    ) -> R | Awaitable[R]:
        try:
            return shard.read(look, refused)
        except KafkaError as error:
            return refused(coordinator_error(error))


async def _import_piecemeal() -> None:
    """A node loads what it needs of the coordinator when the first group comes. At once that would
    hold up the loop for 50 ms and more."""
    for module in iter_modules(coordinator.__path__, f"{coordinator.__name__}."):
        import_module(module.name)
        await asyncio.sleep(0)


def _differ(before: TopicImage | None, after: TopicImage | None) -> bool:
    """Whether groups can see a change of a topic. They do not care who leads it."""
    return before is None or after is None or len(before.partitions) != len(after.partitions)


@lru_cache(MAX_CACHED_GROUP_IDS)
def positive_hash(text: str) -> int:
    """Java's String.hashCode, without its sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & 0xFFFFFFFF
    signed = value - (value >> 31 << 32)
    return abs(signed) & 0x7FFFFFFF
