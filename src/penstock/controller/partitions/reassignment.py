"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455). PURE.

A reassignment has three stages, as in Kafka:

1. The partition gets the target replicas and keeps the replicas to remove after them. The record
   names both: `adding_replicas` and `removing_replicas`.
2. The new replicas fetch from the leader, which lets them into the ISR when they have caught up.
3. The change that brings all target replicas into the ISR drops the replicas to remove
   (`change_builder`). A leader among them is replaced, otherwise a new leader epoch fences them.

If the target replicas are in sync already, the first record completes the reassignment. Until the
third stage every committed record is on every member of the ISR, old and new, so completion and
cancellation lose nothing.

A replica that an earlier, unfinished reassignment added and that a new one removes is in both
lists. So a cancellation always restores the replicas before the first of them. Kafka forgets them
if the new reassignment adds others, and keeps a replica to remove that is a target again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from uuid import UUID

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import (
    RECOVERING,
    AcceptableLeaders,
    Election,
    PartitionChange,
    PartitionChanges,
    PartitionTarget,
    Replicas,
    build_partition_change,
    has_only_elr,
)
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.controller.topics.assignment import check_replicas, default_directory
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import DECIDED_PARTITIONS_A_TURN, LISTED_PARTITIONS_A_TURN
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.topics_delta import apply_partition_change
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_Topic = AlterPartitionReassignmentsRequest.Topic
_Response = AlterPartitionReassignmentsResponse.Response
_Listed = ListPartitionReassignmentsResponse.Topic


def is_reassigning(state: PartitionState) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def original_replicas(state: PartitionState) -> Replicas:
    """Return the replicas to which a cancellation returns."""
    return tuple(replica for replica in state.replicas if replica not in state.adding_replicas)


def target_replicas(state: PartitionState) -> Replicas:
    """Return the replicas that remain when the reassignment is complete."""
    return tuple(replica for replica in state.replicas if replica not in state.removing_replicas)


# AlterPartitionReassignments


def slices_of(
    request: AlterPartitionReassignmentsRequest, size: int = DECIDED_PARTITIONS_A_TURN
) -> list[AlterPartitionReassignmentsRequest]:
    """Divide a request into requests of some partitions each, in order: at least one."""
    slices: list[list[_Topic]] = [[]]
    room = size
    for topic in request.topics:
        rest = topic.partitions
        while rest:
            if not room:
                slices.append([])
                room = size
            slices[-1].append(_Topic(name=topic.name, partitions=rest[:room]))
            taken = min(room, len(rest))
            rest, room = rest[taken:], room - taken
    return [
        AlterPartitionReassignmentsRequest(
            timeout_ms=request.timeout_ms,
            allow_replication_factor_change=request.allow_replication_factor_change,
            topics=tuple(topics),
        )
        for topics in slices
    ]


def merged(
    responses: Iterable[AlterPartitionReassignmentsResponse], *, allow_factor_change: bool
) -> AlterPartitionReassignmentsResponse:
    """Return the response to a request from those to its slices."""
    topics = (topic for response in responses for topic in response.responses)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allow_factor_change,
        error_message=None,
        responses=tuple(
            _Response(
                name=name,
                partitions=tuple(partition for topic in same for partition in topic.partitions),
            )
            for name, same in groupby(topics, key=lambda topic: topic.name)
        ),
    )


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, context: ControllerContext
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Start or cancel reassignments. Each partition succeeds or fails independently."""
    reassignments = _Reassignments(
        image, context, allow_factor_change=request.allow_replication_factor_change
    )
    responses = tuple(
        _Response(
            name=topic.name,
            partitions=tuple(
                reassignments.result(topic.name, partition.partition_index, partition.replicas)
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return ControllerResult(
        tuple(reassignments.changes.records),
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        ),
        tuple(reassignments.changes.warnings),
        is_atomic=False,
    )


class _Reassignments:
    """The state of one request."""

    def __init__(
        self, image: MetadataImage, context: ControllerContext, *, allow_factor_change: bool
    ) -> None:
        self.changes = PartitionChanges()
        self._image = image
        self._allow_factor_change = allow_factor_change
        self._configs = ElectionConfigs(image, context)
        self._leaders = AcceptableLeaders(image)
        # Partitions that this request has changed: it may name a partition twice.
        self._changed: dict[tuple[UUID, int], PartitionState] = {}

    def result(self, name: str, index: int, target: Replicas | None) -> _Response.Partition:
        try:
            self._alter(name, index, target)
        except KafkaError as error:
            return _Response.Partition(
                partition_index=index, error_code=error.code, error_message=error.message
            )
        return _Response.Partition(partition_index=index, error_message=None)

    def _alter(self, name: str, index: int, target: Replicas | None) -> None:
        topic = self._image.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
            )
        state = self._changed.get((topic.id, index)) or topic.partitions.get(index)
        if state is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
            )
        change = (
            self._cancel(topic, index, state)
            if target is None
            else self._start(topic, index, state, target)
        )
        self.changes.add(change)
        if change is not None:
            self._changed[topic.id, index] = apply_partition_change(state, change.record)

    def _start(
        self, topic: TopicImage, index: int, state: PartitionState, target: Replicas
    ) -> PartitionChange | None:
        check_replicas(self._image, target)
        factor = len(target_replicas(state))
        if not self._allow_factor_change and factor != len(target):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(target)}",
            )
        # The order of the current replicas, so that a cancellation keeps the preferred leader.
        removing = tuple(replica for replica in state.replicas if replica not in target)
        replicas = (*target, *removing)
        change = PartitionTarget(
            replicas=replicas,
            adding=tuple(sorted(set(replicas).difference(original_replicas(state)))),
            removing=tuple(sorted(removing)),
            directories=self._directories(state, replicas),
        )
        return build_partition_change(
            topic, index, state, self._configs.of(topic), self._leaders, Election.ONLINE, change
        )

    def _directories(self, state: PartitionState, replicas: Replicas) -> tuple[UUID, ...]:
        current = dict(zip(state.replicas, state.directories, strict=True))
        return tuple(
            current[replica]
            if replica in current
            else default_directory(self._image.brokers[replica])
            for replica in replicas
        )

    def _cancel(
        self, topic: TopicImage, index: int, state: PartitionState
    ) -> PartitionChange | None:
        if not is_reassigning(state):
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        replicas = original_replicas(state)
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        config = self._configs.of(topic)
        election = Election.UNCLEAN if config.unclean_enabled else Election.ONLINE
        isr = tuple(replica for replica in state.isr if replica in replicas)
        target = PartitionTarget(isr=isr, replicas=replicas, adding=(), removing=())
        is_eligible = (config.elr_enabled or has_only_elr(state)) and any(
            replica in replicas for replica in state.eligible_leader_replicas
        )
        if isr or is_eligible:
            return build_partition_change(
                topic, index, state, config, self._leaders, election, target
            )
        if not config.unclean_enabled:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would "
                "require an unclean leader election.",
            )
        leader = next(
            (replica for replica in replicas if self._leaders.accepts(state, replica)), replicas[0]
        )
        target = target._replace(isr=(leader,), leader_recovery_state=RECOVERING)
        change = build_partition_change(
            topic, index, state, config, self._leaders, election, target
        )
        return None if change is None else change._replace(warning=_lost(topic, index, state))


def _lost(topic: TopicImage, index: int, state: PartitionState) -> str:
    return (
        f"{topic.name}-{index}: the reassignment was cancelled while only replicas that it adds "
        f"were in sync, {list(state.isr)}. Records that no other replica has are lost"
    )


# ListPartitionReassignments


def listed_slices(
    image: MetadataImage,
    request: ListPartitionReassignmentsRequest,
    size: int = LISTED_PARTITIONS_A_TURN,
) -> Iterator[_Listed | None]:
    """Yield the reassignments by topic, and None after a look at so many partitions: a topic may be
    listed in several parts. Topics and partitions that do not exist are left out. A request without
    topics names all."""
    room = size
    for topic, indexes in _requested(image, request):
        remaining = iter(indexes)
        while some := list(islice(remaining, room)):
            room -= len(some)
            listed = _list_topic(topic, some)
            if listed is not None:
                yield listed
            if not room:
                room = size
                yield None


def _requested(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicImage, Iterable[int]]]:
    if request.topics is None:
        for topic in image.topics.values():
            yield topic, topic.partitions
        return
    for requested in request.topics:
        named = image.topics.get(requested.name)
        if named is not None:
            yield named, requested.partition_indexes


def _list_topic(topic: TopicImage, indexes: Iterable[int]) -> _Listed | None:
    """Return the reassignments of these partitions of a topic; None if there are none."""
    listed = tuple(
        _Listed.Partition(
            partition_index=index,
            replicas=state.replicas,
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
        )
        for index in indexes
        if (state := topic.partitions.get(index)) is not None and is_reassigning(state)
    )
    return _Listed(name=topic.name, partitions=listed) if listed else None


def listed_response(listed: Iterable[_Listed]) -> ListPartitionReassignmentsResponse:
    """Return the response: the parts of a topic that was listed in several are joined."""
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=tuple(
            _Listed(
                name=name,
                partitions=tuple(partition for part in parts for partition in part.partitions),
            )
            for name, parts in groupby(listed, key=lambda part: part.name)
        ),
    )
