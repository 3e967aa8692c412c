"""ElectLeaders, and the periodic elections of the controller. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.change_builder import (
    AcceptableLeaders,
    Election,
    PartitionChanges,
    build_partition_change,
)
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.schema import changed

# Kafka's bound on one round of the periodic elections.
MAX_ELECTIONS = 1_000

_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_NOT_AVAILABLE = {
    Election.PREFERRED: (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "The preferred leader was not available.",
    ),
    Election.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
_NOT_NEEDED = "Leader election not needed for topic partition."

TopicResult = ElectLeadersResponse.ReplicaElectionResult
Result = TopicResult.PartitionResult


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, context: ControllerContext
) -> ControllerResult[ElectLeadersResponse]:
    """Elect leaders of the given partitions, or of all.

    The response for all partitions omits those that need no election. KafkaError fails the whole
    request.
    """
    election = _TYPES.get(request.election_type)
    if election is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    elections = _Elections(image, context)
    if request.topic_partitions is None:
        partitions = [(topic.name, tuple(topic.partitions)) for topic in image.topics.values()]
    else:
        partitions = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    results = []
    for name, indexes in partitions:
        result = [elections.result(name, index, election) for index in indexes]
        if request.topic_partitions is None:
            result = [
                partition
                for partition in result
                if partition.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
        results.append(TopicResult(topic=name, partition_result=tuple(result)))
    changes = elections.changes
    if len(changes.records) > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return ControllerResult(
        tuple(changes.records),
        ElectLeadersResponse(replica_election_results=tuple(results)),
        tuple(changes.warnings),
    )


def election_slices(
    image: MetadataImage, request: ElectLeadersRequest, size: int
) -> list[ElectLeadersRequest]:
    """Return requests for the partitions of a request, with at most `size` partitions each: a
    cluster may have 100,000. A request for all partitions becomes one for those that need an
    election."""
    if request.topic_partitions is None:
        is_unclean = _TYPES.get(request.election_type) is Election.UNCLEAN
        partitions = [
            (topic.name, index)
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if (state.leader == NO_LEADER if is_unclean else state.leader != state.replicas[0])
        ]
    else:
        partitions = [
            (topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        ]
    if len(partitions) <= size:
        return [request]
    slices = []
    for start in range(0, len(partitions), size):
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions[start : start + size]:
            by_topic.setdefault(name, []).append(index)
        asked = tuple(
            ElectLeadersRequest.TopicPartition(topic=name, partitions=tuple(indexes))
            for name, indexes in by_topic.items()
        )
        slices.append(changed(request, topic_partitions=asked))
    return slices


def joined_elections(
    image: MetadataImage, request: ElectLeadersRequest, responses: Sequence[ElectLeadersResponse]
) -> ElectLeadersResponse:
    """Return the response to a request from those to its slices."""
    if len(responses) == 1:
        return responses[0]
    is_for_all = request.topic_partitions is None
    results: dict[str, list[Result]] = {name: [] for name in image.topics} if is_for_all else {}
    for response in responses:
        for topic in response.replica_election_results:
            results.setdefault(topic.topic, []).extend(
                result
                for result in topic.partition_result
                if not is_for_all or result.error_code != ErrorCode.ELECTION_NOT_NEEDED
            )
    return ElectLeadersResponse(
        replica_election_results=tuple(
            TopicResult(topic=name, partition_result=tuple(partitions))
            for name, partitions in results.items()
        )
    )


def rebalance_leaders(
    image: MetadataImage, context: ControllerContext, limit: int = MAX_ELECTIONS
) -> ControllerResult[bool]:
    """Move leadership back to preferred leaders that are in sync. The response is True if more
    partitions may be due."""
    elections = _Elections(image, context)
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if (
                state.leader != state.replicas[0]
                and len(elections.changes.records) < limit
                # Checked first: the preferred leader of a third of all partitions may be down.
                and elections.leaders.accepts(state, state.replicas[0])
            ):
                elections.elect(topic, index, state, Election.PREFERRED)
    return elections.decision(limit)


def elect_unclean_leaders(
    image: MetadataImage, context: ControllerContext, limit: int = MAX_ELECTIONS
) -> ControllerResult[bool]:
    """Elect leaders of leaderless partitions whose topics allow unclean elections: the setting may
    have changed after the partition lost its leader."""
    elections = _Elections(image, context)
    configs = ElectionConfigs(image, context)
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if (
                state.leader == NO_LEADER
                and configs.of(topic).unclean_enabled
                and len(elections.changes.records) < limit
            ):
                elections.elect(topic, index, state, Election.UNCLEAN)
    return elections.decision(limit)


class _Elections:
    def __init__(self, image: MetadataImage, context: ControllerContext) -> None:
        self.changes = PartitionChanges()
        self._image = image
        self._election_configs = ElectionConfigs(image, context)
        self.leaders = AcceptableLeaders(image)

    def decision(self, limit: int) -> ControllerResult[bool]:
        return ControllerResult(
            tuple(self.changes.records),
            len(self.changes.records) >= limit,
            tuple(self.changes.warnings),
        )

    def elect(
        self, topic: TopicImage, index: int, state: PartitionState, election: Election
    ) -> bool:
        change = build_partition_change(
            topic, index, state, self._election_configs.of(topic), self.leaders, election
        )
        self.changes.add(change)
        return change is not None

    def result(self, name: str, index: int, election: Election) -> Result:
        code, message = self._try_elect(name, index, election)
        return Result(partition_id=index, error_code=code, error_message=message)

    def _try_elect(self, name: str, index: int, election: Election) -> tuple[ErrorCode, str | None]:
        topic = self._image.topics.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        state = topic.partitions.get(index)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        is_not_needed = (
            state.leader == state.replicas[0]
            if election is Election.PREFERRED
            else state.leader != NO_LEADER
        )
        if is_not_needed:
            return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
        return (
            (ErrorCode.NONE, None)
            if self.elect(topic, index, state, election)
            else _NOT_AVAILABLE[election]
        )
