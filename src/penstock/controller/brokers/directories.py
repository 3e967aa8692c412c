"""Log directories of a broker: some are lost, some get nothing new, and replicas move between them
(KIP-858, KIP-1066). PURE."""

from __future__ import annotations

from uuid import UUID

from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.partitions.candidates import Candidates
from penstock.controller.partitions.change import Election, Wanted, change_partition
from penstock.controller.partitions.leadership import Changes, without_broker
from penstock.controller.topics.rules import AllTopicRules
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BrokerImage, MetadataImage, PartitionState
from penstock.protocol.internal.metadata_nodes import BrokerRegistrationChangeRecord
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

Answer = AssignReplicasToDirsResponse.Directory


def offline_directories(
    image: MetadataImage, broker_id: int, reported: tuple[UUID, ...], node: ControllerContext
) -> Decision[None]:
    """The replicas in the lost directories lead no more and are in sync no more; the broker lives
    on with the others.

    One whose last directory is lost stops by itself, so that its registration is left as it is.
    """
    broker = image.brokers[broker_id]
    lost = [directory for directory in broker.directories if directory in reported]
    if not lost:
        return Decision((), None)

    def lies_there(state: PartitionState) -> bool:
        return state.directories[state.replicas.index(broker_id)] in lost

    changes = without_broker(image, node, broker_id, where=lies_there)
    left = tuple(directory for directory in broker.directories if directory not in lost)
    marked = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=left
    )
    return Decision((*changes.records, *((marked,) if left else ())), None, tuple(changes.notes))


def cordoned_directories(
    image: MetadataImage, broker_id: int, reported: tuple[UUID, ...] | None
) -> tuple[object, ...]:
    """Those that shall get no new replicas. None says nothing of them."""
    broker = image.brokers[broker_id]
    if reported is None or set(reported) == set(broker.cordoned_directories):
        return ()
    return (
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=reported
        ),
    )


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, node: ControllerContext
) -> Decision[AssignReplicasToDirsResponse]:
    """A broker says where it put its replicas. One that it put into a directory that is lost is
    lost too."""
    try:
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision((), AssignReplicasToDirsResponse(error_code=error.code))
    assigning = _Assigning(image, node, broker)
    answers = tuple(assigning.directory(directory) for directory in request.directories)
    changes = assigning.changes
    return Decision(
        tuple(changes.records),
        AssignReplicasToDirsResponse(directories=answers),
        tuple(changes.notes),
    )


class _Assigning:
    """One request on its way through directories, topics and partitions."""

    def __init__(self, image: MetadataImage, node: ControllerContext, broker: BrokerImage) -> None:
        self.changes = Changes()
        self._image = image
        self._broker = broker
        self._rules = AllTopicRules(image, node)
        self._candidates = {False: Candidates(image), True: Candidates(image, removed=broker.id)}
        # A replica that is assigned twice in one request: the first word counts.
        self._assigned: set[tuple[UUID, int]] = set()

    def directory(self, given: AssignReplicasToDirsRequest.Directory) -> Answer:
        topics = []
        for topic in given.topics:
            errors = [
                (one.partition_index, self._assign(topic.topic_id, one.partition_index, given.id))
                for one in topic.partitions
            ]
            partitions = tuple(
                Answer.Topic.Partition(partition_index=index, error_code=code)
                for index, code in errors
            )
            topics.append(Answer.Topic(topic_id=topic.topic_id, partitions=partitions))
        return Answer(id=given.id, topics=tuple(topics))

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
            lost = bool(self._broker.directories) and directory not in self._broker.directories
            rules = self._rules.of(topic)
            election = Election.UNCLEAN if rules.unclean else Election.ONLINE
            wanted = self._wanted(state, directory, lost=lost)
            self.changes.add(
                change_partition(
                    topic, index, state, rules, self._candidates[lost], election, wanted
                )
            )
        return ErrorCode.NONE

    def _wanted(self, state: PartitionState, directory: UUID, *, lost: bool) -> Wanted:
        pairs = zip(state.replicas, state.directories, strict=True)
        directories = tuple(
            directory if replica == self._broker.id else where for replica, where in pairs
        )
        isr = tuple(replica for replica in state.isr if not (lost and replica == self._broker.id))
        return Wanted(isr=isr, directories=directories)
