"""Log directories of brokers: offline ones, cordoned ones, and assignments of replicas (KIP-858,
KIP-1066). PURE."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import (
    AcceptableLeaders,
    Election,
    PartitionChanges,
    PartitionTarget,
    build_partition_change,
)
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.controller.partitions.leader_and_isr import (
    ByTopic,
    isr_memberships,
    remove_broker_from_isrs,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BrokerImage, MetadataImage, PartitionState
from penstock.protocol.internal.metadata_nodes import BrokerRegistrationChangeRecord
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

_Directory = AssignReplicasToDirsResponse.Directory


def offline_directories(
    image: MetadataImage, broker_id: int, reported: tuple[UUID, ...], context: ControllerContext
) -> ControllerResult[None]:
    """Remove the replicas in offline directories from their ISRs and leaderships.

    A broker whose last directory is offline shuts down, so its registration does not change.
    """
    broker = image.brokers[broker_id]
    offline = [directory for directory in broker.directories if directory in reported]
    if not offline:
        return ControllerResult((), None)

    def is_offline(state: PartitionState) -> bool:
        return _directory_of(state, broker_id) in offline

    changes = remove_broker_from_isrs(image, context, broker_id, where=is_offline)
    online = tuple(directory for directory in broker.directories if directory not in offline)
    registration = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=online
    )
    return ControllerResult(
        (*changes.records, *((registration,) if online else ())), None, tuple(changes.warnings)
    )


def offline_memberships(
    image: MetadataImage, broker: BrokerImage, reported: Sequence[UUID]
) -> ByTopic:
    """Return the replicas of the broker that are in an ISR and in an offline directory."""
    offline = [directory for directory in broker.directories if directory in reported]
    if not offline:
        return []
    found = (
        (topic_id, [index for index in indexes if _is_in(image, topic_id, index, broker, offline)])
        for topic_id, indexes in isr_memberships(image, broker.id)
    )
    return [(topic_id, indexes) for topic_id, indexes in found if indexes]


def _is_in(
    image: MetadataImage,
    topic_id: UUID,
    index: int,
    broker: BrokerImage,
    directories: Sequence[UUID],
) -> bool:
    topic = image.topic_by_id(topic_id)
    state = None if topic is None else topic.partitions[index]
    return state is not None and _directory_of(state, broker.id) in directories


def _directory_of(state: PartitionState, broker_id: int) -> UUID:
    return state.directories[state.replicas.index(broker_id)]


def cordoned_directories(
    image: MetadataImage, broker_id: int, reported: tuple[UUID, ...] | None
) -> tuple[object, ...]:
    """Record the directories that get no new replicas. None means no change."""
    broker = image.brokers[broker_id]
    if reported is None or set(reported) == set(broker.cordoned_directories):
        return ()
    return (
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=reported
        ),
    )


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, context: ControllerContext
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Record the directories of a broker's replicas. A replica in an offline directory leaves its
    ISR."""
    try:
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return ControllerResult((), AssignReplicasToDirsResponse(error_code=error.code))
    assignments = _Assignments(image, context, broker)
    directories = tuple(
        assignments.assign_directory(directory) for directory in request.directories
    )
    changes = assignments.changes
    return ControllerResult(
        tuple(changes.records),
        AssignReplicasToDirsResponse(directories=directories),
        tuple(changes.warnings),
    )


class _Assignments:
    """The state of one AssignReplicasToDirs request."""

    def __init__(
        self, image: MetadataImage, context: ControllerContext, broker: BrokerImage
    ) -> None:
        self.changes = PartitionChanges()
        self._image = image
        self._broker = broker
        self._election_configs = ElectionConfigs(image, context)
        self._leaders = {
            False: AcceptableLeaders(image),
            True: AcceptableLeaders(image, removed=broker.id),
        }
        # If a request assigns a replica twice, the first assignment counts.
        self._assigned: set[tuple[UUID, int]] = set()

    def assign_directory(self, given: AssignReplicasToDirsRequest.Directory) -> _Directory:
        topics = []
        for topic in given.topics:
            errors = [
                (
                    partition.partition_index,
                    self._assign(topic.topic_id, partition.partition_index, given.id),
                )
                for partition in topic.partitions
            ]
            partitions = tuple(
                _Directory.Topic.Partition(partition_index=index, error_code=code)
                for index, code in errors
            )
            topics.append(_Directory.Topic(topic_id=topic.topic_id, partitions=partitions))
        return _Directory(id=given.id, topics=tuple(topics))

    def _assign(self, topic_id: UUID, index: int, directory: UUID) -> ErrorCode:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        state = topic.partitions.get(index)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._broker.id not in state.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if (topic_id, index) not in self._assigned:
            self._assigned.add((topic_id, index))
            is_offline = (
                bool(self._broker.directories) and directory not in self._broker.directories
            )
            config = self._election_configs.of(topic)
            election = Election.UNCLEAN if config.unclean_enabled else Election.ONLINE
            target = self._target(state, directory, is_offline=is_offline)
            self.changes.add(
                build_partition_change(
                    topic, index, state, config, self._leaders[is_offline], election, target
                )
            )
        return ErrorCode.NONE

    def _target(
        self, state: PartitionState, directory: UUID, *, is_offline: bool
    ) -> PartitionTarget:
        pairs = zip(state.replicas, state.directories, strict=True)
        directories = tuple(
            directory if replica == self._broker.id else current for replica, current in pairs
        )
        isr = tuple(
            replica for replica in state.isr if not (is_offline and replica == self._broker.id)
        )
        return PartitionTarget(isr=isr, directories=directories)
