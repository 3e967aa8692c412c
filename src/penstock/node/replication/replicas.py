"""The replicas of this broker: creates, deletes and assigns roles to partitions as the metadata
says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, RESERVED_UUIDS, TopicPartition
from penstock.limits import (
    CHANGED_PARTITIONS_PER_STEP,
    COMPARED_PARTITIONS_PER_STEP,
    FILES_RETRY_S,
    METADATA_STEPS_PER_TURN,
    PARTITIONS_PER_FREEZE,
    REVIEWED_PARTITIONS_PER_STEP,
)
from penstock.log.directory import LogDirectory, TooManyFiles, unless_offline
from penstock.log.log import Log
from penstock.log.names import HIGH_WATERMARKS
from penstock.log.saved_offsets import StillListed
from penstock.log.store import LogStore
from penstock.metadata.image import (
    BROKER,
    TOPIC,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.node.broker.controllers import ControllerChannel
from penstock.node.broker.directories import DirectoryReports, remove_leftovers
from penstock.node.broker.lifecycle import Lifecycle
from penstock.node.delayed import ActionQueue
from penstock.node.metadata import MetadataView, delta_in_turns
from penstock.node.partition.counts import PartitionCounts
from penstock.node.partition.env import PartitionEnv, PartitionMarks
from penstock.node.partition.isr_changes import IsrChanges
from penstock.node.partition.isr_log import IsrLog
from penstock.node.partition.partition import Partition
from penstock.node.replication.fetchers import ReplicaFetchers
from penstock.node.supervisor import Supervisor
from penstock.replica.throttle import ReplicationThrottles
from penstock.world import World

logger = logging.getLogger(__name__)


class PartitionOffsets(NamedTuple):
    """An offset of each partition, read when it is asked for. `others` are those of logs whose
    partitions do not exist yet."""

    partitions: Mapping[TopicPartition, Partition]
    offset: Callable[[Partition], int]
    others: Mapping[TopicPartition, int]

    def get(self, name: TopicPartition, /) -> int | None:
        partition = self.partitions.get(name)
        return self.others.get(name) if partition is None else self.offset(partition)


class Replicas:
    """Has no partitions before `open`. After it, `apply` receives every metadata change in
    order."""

    # Called whenever a number of partitions was created or changed: their objects are long-lived.
    on_large_change: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        store: LogStore,
        metadata: MetadataView,
        channel: ControllerChannel,
        lifecycle: Lifecycle,
        supervisor: Supervisor,
        actions: ActionQueue,
        applied_offset: Callable[[], int],
    ) -> None:
        self.store = store
        self.partitions: dict[TopicPartition, Partition] = {}
        # Whether the logs are open, and whether their partitions exist too.
        self.has_logs = False
        self.opened = False
        # The checkpoint, while partitions are created.
        self._saved_watermarks: dict[TopicPartition, int] = {}
        # Partitions that metadata changed.
        self._changed = 0
        self._is_closed = False
        # Partitions whose names were in use before; their logs are created when no checkpoint lists
        # the deleted ones.
        self._still_listed: dict[TopicPartition, None] = {}
        self._is_creating = False
        self._world = world
        self._config = config
        self._node_id = config.node_id
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._supervisor = supervisor
        self._applied_offset = applied_offset
        spawn = supervisor.spawn
        marks = PartitionMarks()
        isr_changes = IsrChanges(
            self._node_id,
            channel.call,
            lambda: lifecycle.broker_epoch,
            spawn,
            IsrLog(self._node_id, world.clock, lambda: metadata.image.brokers, marks.fetched_at),
        )
        self._env = PartitionEnv(
            node_id=self._node_id,
            world=world,
            store=store,
            spawn=spawn,
            brokers=lambda: metadata.image.brokers,
            propose=isr_changes.propose,
            lag_max_s=config[cluster_settings.REPLICA_LAG_TIME_MAX_MS] / 1000,
            actions=actions,
            marks=marks,
        )
        self._fetchers = ReplicaFetchers(
            self._env,
            config,
            address_of=metadata.broker_address,
            broker_epoch=lambda: lifecycle.broker_epoch,
        )
        self._reports = DirectoryReports(
            self._node_id, channel, lambda: lifecycle.broker_epoch, spawn
        )
        # The settings of a topic without its own.
        self._log_defaults: LogConfig | None = None
        store.on_failure = self._directory_failed
        store.moves.pause_s = lambda copied: self._env.throttles.log_dirs.recorded_wait_s(
            copied, world.clock.monotonic()
        )

    async def open(self) -> None:
        """Open the logs on disk with the topic configs of the metadata."""
        self._apply_rates()
        self._log_defaults_changed()
        await remove_leftovers(self.store, self._world, self._metadata.image, self._node_id)
        await self.store.open(lambda partition: self._metadata.topic_config(partition.topic))
        self._set_strays_aside()
        for move in self.store.moves.under_way.values():
            self._supervisor.spawn(self.store.moves.run(move))
        self._saved_watermarks = self.store.offsets.read_high_watermarks()
        self.has_logs = True
        await self._create_partitions()
        self._saved_watermarks = {}
        self.opened = True

    async def _create_partitions(self) -> None:
        """Create the partitions of the metadata. The event loop runs between bounded parts, so that
        the metadata may change: then go on with the changes."""
        applied = MetadataImage.empty()
        while applied is not (image := self._metadata.image):
            steps = self._apply(image, await delta_in_turns(applied, image))
            for count, _step in enumerate(steps, 1):
                if count % METADATA_STEPS_PER_TURN == 0:
                    await asyncio.sleep(0)
            applied = image

    async def close(self) -> None:
        self._is_closed = True
        await self.save_high_watermarks()
        await self.store.close(self._lifecycle.broker_epoch)

    async def save_high_watermarks(self) -> None:
        self._env.marks.high_watermark_changed = False
        await self.store.offsets.save_high_watermarks(self.high_watermarks)

    async def save_changed_high_watermarks(self) -> None:
        """Save the high watermarks unless none changed, and no log moved to another directory,
        since they were saved."""
        if (
            self._env.marks.high_watermark_changed
            or HIGH_WATERMARKS in self.store.due.changed_checkpoints
        ):
            await self.save_high_watermarks()

    @property
    def high_watermarks(self) -> PartitionOffsets:
        return PartitionOffsets(
            self.partitions, attrgetter("high_watermark"), self._saved_watermarks
        )

    @property
    def last_stable_offsets(self) -> PartitionOffsets:
        return PartitionOffsets(self.partitions, attrgetter("last_stable_offset"), {})

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        """Apply a metadata change in steps: creating or deleting a partition is one, and changing
        or reviewing several."""
        return self._apply(image, delta) if self.opened else iter(())

    def _apply(self, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        for before, after in delta.topics.values():
            if before is not None and (after is None or after.id != before.id):
                yield from self._delete_topic(before)
            if after is not None:
                yield from self._update(after, before, delta.partitions.get(after.id))
        if delta.brokers:
            yield from self.review()
        yield from self._apply_configs(image, delta)

    @property
    def throttles(self) -> ReplicationThrottles:
        return self._env.throttles

    @property
    def counts(self) -> PartitionCounts:
        return self._env.counts

    @property
    def fetched_at(self) -> dict[int, float]:
        """When each broker last fetched from this one, on the monotonic clock."""
        return self._env.marks.fetched_at

    def _apply_rates(self) -> None:
        """Set the rates of the replication throttles (KIP-73)."""
        values, now = self._metadata.broker_config, self._world.clock.monotonic()
        throttles = self._env.throttles
        throttles.leader.set_rate(values[cluster_settings.LEADER_REPLICATION_THROTTLED_RATE], now)
        throttles.follower.set_rate(
            values[cluster_settings.FOLLOWER_REPLICATION_THROTTLED_RATE], now
        )
        throttles.log_dirs.set_rate(
            values[cluster_settings.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND], now
        )

    def _log_defaults_changed(self) -> bool:
        """Return True if topics have other defaults than at the last call. Most settings of brokers
        are none, such as the rate of a throttle: then no partition need be looked at."""
        before, self._log_defaults = self._log_defaults, self._metadata.broker_config.log_config({})
        return before != self._log_defaults

    def _apply_configs(self, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
        broker_changed = any(kind == BROKER for kind, _name in delta.configs)
        if broker_changed:
            self._apply_rates()
            broker_changed = self._log_defaults_changed()
        changed = (
            image.topics
            if broker_changed
            else {name for kind, name in delta.configs if kind == TOPIC and name in image.topics}
        )
        count = 0
        for name in changed:
            config = self._metadata.topic_config(name)
            for index in image.topics[name].partitions:
                partition = self.partitions.get(TopicPartition(name, index))
                if partition is not None:
                    partition.config = config
                    partition.log.mark()
                count += 1
                if count % REVIEWED_PARTITIONS_PER_STEP == 0:
                    yield

    def review(self) -> Iterator[None]:
        """Look for ISR changes of all partitions, in steps; called when brokers change."""
        for count, partition in enumerate(list(self.partitions.values()), 1):
            partition.review()
            if count % REVIEWED_PARTITIONS_PER_STEP == 0:
                yield

    def review_marked(self) -> Iterator[None]:
        """Look for ISR changes where time alone may bring one, in steps; called periodically."""
        for count, role in enumerate(list(self._env.marks.reviews), 1):
            role.review()
            if count % REVIEWED_PARTITIONS_PER_STEP == 0:
                yield

    def is_cut_off(self, leader: int) -> bool:
        return self._fetchers.is_cut_off(leader)

    # Partitions

    def partition(self, topic: TopicImage, index: int) -> Partition:
        """Return this broker's replica of a partition. KafkaError if it has none or its log
        directory is offline. The partition checks leadership."""
        name = TopicPartition(topic.name, index)
        partition = self.partitions.get(name)
        if partition is not None:
            if partition.directory.failure is not None:
                raise partition.directory.offline()
            return partition
        state = topic.partitions.get(index)
        if state is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {index}"
            )
        if self._node_id not in state.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._node_id} has no replica of {name}",
            )
        if self._applied_offset() < self._metadata.image.offset:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._node_id} has no replica of {name} yet",
            )
        reason = self.store.damaged.get(name, "its log directory is offline")
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} cannot be served: {reason}")

    def exists(self, name: TopicPartition) -> bool:
        """Return True if the cluster has the partition."""
        topic = self._metadata.image.topics.get(name.topic)
        return topic is not None and name.partition in topic.partitions

    def unopened(self) -> Iterator[TopicPartition | None]:
        """Return the replicas of this broker that have no partition here because their log
        directory was offline at the start, and None for every other partition of the cluster, so
        that the caller can pause."""
        for topic in self._metadata.image.topics.values():
            for index, state in topic.partitions.items():
                name = TopicPartition(topic.name, index)
                is_unopened = (
                    self._node_id in state.replicas
                    and name not in self.partitions
                    and name not in self.store.damaged
                )
                yield name if is_unopened else None

    def _set_strays_aside(self) -> None:
        """Rename logs of topics that were deleted or created again under another id, and logs of
        partitions that have no replica on this broker. As in Kafka they are kept: a broker that
        joins the wrong cluster, or a quorum that lost its metadata, must not cost the records."""
        for partition, log in list(self.store.logs.items()):
            topic = self._metadata.image.topics.get(partition.topic)
            state = (
                None
                if topic is None or log.topic_id not in (topic.id, NO_UUID)
                else topic.partitions.get(partition.partition)
            )
            if state is None or self._node_id not in state.replicas:
                path = log.path
                with unless_offline(log.directory):
                    logger.warning(
                        "%s is now %s: this broker has no replica of its partition. Remove it if "
                        "it is not needed",
                        path,
                        self.store.set_aside(partition),
                    )

    def _update(
        self,
        topic: TopicImage,
        before: TopicImage | None,
        changed: Sequence[int] | None = None,
    ) -> Iterator[None]:
        """Apply a topic's partitions; only those that changed, if they are known."""
        config = self._metadata.topic_config(topic.name)
        for number, index in enumerate(topic.partitions if changed is None else changed, 1):
            state = topic.partitions[index]
            if (
                before is not None
                and before.id == topic.id
                and before.partitions.get(index) is state
            ):
                if number % COMPARED_PARTITIONS_PER_STEP == 0:
                    yield
                continue
            name = TopicPartition(topic.name, index)
            if self._node_id not in state.replicas:
                yield from self._delete(name, is_reassigned=True)
                if number % COMPARED_PARTITIONS_PER_STEP == 0:
                    yield
                continue
            known = self.partitions.get(name)
            partition = known or self._create(topic, name, state, config)
            if partition is not None and partition.directory.failure is None:
                partition.become(state)
                self._fetchers.follow(partition)
                self._reports.check(partition, topic.id, state)
            self._changed += 1
            if self._changed % PARTITIONS_PER_FREEZE == 0:
                self.on_large_change()
            if known is None or self._changed % CHANGED_PARTITIONS_PER_STEP == 0:
                yield

    def _create(
        self,
        topic: TopicImage,
        name: TopicPartition,
        state: PartitionState,
        config: LogConfig,
    ) -> Partition | None:
        if name in self.store.damaged:
            return None
        try:
            log = self.store.logs.get(name) or self._new_log(topic.id, name, state, config)
            if log.topic_id == NO_UUID:
                self.store.give_topic_id(name, topic.id)
        except StillListed:
            self._still_listed[name] = None
            if not self._is_creating:
                self._is_creating = True
                self._supervisor.spawn(self._create_unlisted())
            return None
        except TooManyFiles as error:
            logger.error("cannot serve %s yet, retrying: %s", name, error.message)
            asyncio.get_running_loop().call_later(FILES_RETRY_S, self._retry_creation, name)
            return None
        except KafkaError as error:
            logger.error("cannot serve %s: %s", name, error.message)
            return None
        high_watermark = self._saved_watermarks.get(name, 0)
        partition = self.partitions[name] = Partition(log, self._env, high_watermark)
        if log.config != config:
            # The log was opened before the metadata changed.
            partition.config = config
            log.mark()
        return partition

    async def _create_unlisted(self) -> None:
        """Save the checkpoints, then create the logs that reuse names of deleted ones."""
        while self._still_listed and not self._is_closed:
            names = list(self._still_listed)
            await self.store.offsets.forget_deleted(self.high_watermarks)
            for name in names:
                del self._still_listed[name]
                self._retry_creation(name)
                await asyncio.sleep(0)
        self._is_creating = False

    def _retry_creation(self, name: TopicPartition) -> None:
        topic = self._metadata.image.topics.get(name.topic)
        if topic is not None and name.partition in topic.partitions and not self._is_closed:
            only = {name.partition: topic.partitions[name.partition]}
            for _step in self._update(replace(topic, partitions=only), None):
                pass

    def _new_log(
        self, topic_id: UUID, name: TopicPartition, state: PartitionState, config: LogConfig
    ) -> Log:
        """Create the log in its assigned directory, or fail: a directory that is offline may still
        have the replica's records. If no directory is offline, the assigned one was replaced, and
        any directory is good, as in Kafka."""
        assigned = dict(zip(state.replicas, state.directories, strict=False)).get(
            self._node_id, NO_UUID
        )
        directory: LogDirectory | None = None
        if assigned.int >= RESERVED_UUIDS:
            directory = next(
                (online for online in self.store.online if online.id == assigned), None
            )
            if directory is None and len(self.store.online) < len(self.store.directories):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "its assigned log directory is offline"
                )
        while True:
            online_count = len(self.store.online)
            try:
                return self.store.create(name, topic_id, config, directory)
            except KafkaError:
                # If the directory failed because of this, try another one, as Kafka does.
                if directory is not None or not 0 < len(self.store.online) < online_count:
                    raise

    def _delete_topic(self, topic: TopicImage) -> Iterator[None]:
        for index in topic.partitions:
            yield from self._delete(TopicPartition(topic.name, index))
        self._env.counts.forget(topic.name)

    def _delete(self, name: TopicPartition, *, is_reassigned: bool = False) -> Iterator[None]:
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self._fetchers.unfollow(partition)
            partition.abandon(is_reassigned=is_reassigned)
        log = self.store.logs.get(name)
        if log is not None:
            if is_reassigned:
                logger.info("deleting %s: its replica was reassigned to other brokers", log.path)
            with unless_offline(log.directory):
                self.store.delete(name)
            yield
        if name in self.store.damaged:
            self._delete_damaged(name)
            yield

    def _delete_damaged(self, name: TopicPartition) -> None:
        """Remove the files of a damaged replica. The partition may be assigned to this broker
        again."""
        del self.store.damaged[name]
        delay_ms = self._metadata.topic_config(name.topic).file_delete_delay_ms
        for directory in self.store.online:
            if self._world.disk.is_dir(f"{directory.path}/{name}"):
                logger.info("deleting the damaged replica %s/%s", directory.path, name)
                with unless_offline(directory):
                    self.store.mark_deleted(name, directory, delay_ms)

    # Directories

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Stop fetching into the directory and report it to the controller. The node fails if no
        directory is left, or if the metadata log is in this one."""
        for partition in self.partitions.values():
            if partition.directory is directory:
                self._fetchers.unfollow(partition)
        if not self.store.online or directory.path == self._config.metadata_log_dir:
            self._supervisor.fail(
                KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"log directory {directory.path} failed: {directory.failure}",
                )
            )
        self._lifecycle.heartbeat_soon()
