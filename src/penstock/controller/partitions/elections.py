"""Elections that somebody asks for: ElectLeaders, and what the controller does from time to time.
PURE."""

from __future__ import annotations

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.partitions.candidates import Candidates
from penstock.controller.partitions.change import Election, change_partition
from penstock.controller.partitions.leadership import Changes
from penstock.controller.topics.rules import AllTopicRules
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

# Kafka's bound on what one round of the periodic elections does.
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
    image: MetadataImage, request: ElectLeadersRequest, node: ControllerContext
) -> Decision[ElectLeadersResponse]:
    """For the partitions named; without any, for all, of which those that need none are not listed.
    KafkaError for a request as a whole."""
    election = _TYPES.get(request.election_type)
    if election is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    elections = _Elections(image, node)
    if request.topic_partitions is None:
        asked = [(topic.name, tuple(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [(one.topic, one.partitions) for one in request.topic_partitions]
    results = []
    for name, indexes in asked:
        result = [elections.result(name, index, election) for index in indexes]
        if request.topic_partitions is None:
            result = [one for one in result if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(TopicResult(topic=name, partition_result=tuple(result)))
    changes = elections.changes
    if len(changes.records) > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return Decision(
        tuple(changes.records),
        ElectLeadersResponse(replica_election_results=tuple(results)),
        tuple(changes.notes),
    )


def rebalance_leaders(
    image: MetadataImage, node: ControllerContext, limit: int = MAX_ELECTIONS
) -> Decision[bool]:
    """Leadership goes back to preferred leaders that are in sync again. True where there may be
    more to do at once."""
    elections = _Elections(image, node)
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if state.leader != state.replicas[0] and len(elections.changes.records) < limit:
                elections.elect(topic, index, state, Election.PREFERRED)
    return elections.decision(limit)


def elect_unclean_leaders(
    image: MetadataImage, node: ControllerContext, limit: int = MAX_ELECTIONS
) -> Decision[bool]:
    """Partitions without a leader get one where their topics allow it, since that may have been
    allowed only afterwards."""
    elections = _Elections(image, node)
    rules = AllTopicRules(image, node)
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if (
                state.leader == NO_LEADER
                and rules.of(topic).unclean
                and len(elections.changes.records) < limit
            ):
                elections.elect(topic, index, state, Election.UNCLEAN)
    return elections.decision(limit)


class _Elections:
    def __init__(self, image: MetadataImage, node: ControllerContext) -> None:
        self.changes = Changes()
        self._image = image
        self._rules = AllTopicRules(image, node)
        self._candidates = Candidates(image)

    def decision(self, limit: int) -> Decision[bool]:
        return Decision(
            tuple(self.changes.records),
            len(self.changes.records) >= limit,
            tuple(self.changes.notes),
        )

    def elect(
        self, topic: TopicImage, index: int, state: PartitionState, election: Election
    ) -> bool:
        change = change_partition(
            topic, index, state, self._rules.of(topic), self._candidates, election
        )
        self.changes.add(change)
        return change is not None

    def result(self, name: str, index: int, election: Election) -> Result:
        code, message = self._tried(name, index, election)
        return Result(partition_id=index, error_code=code, error_message=message)

    def _tried(self, name: str, index: int, election: Election) -> tuple[ErrorCode, str | None]:
        topic = self._image.topics.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        state = topic.partitions.get(index)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        needless = (
            state.leader == state.replicas[0]
            if election is Election.PREFERRED
            else state.leader != NO_LEADER
        )
        if needless:
            return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
        return (
            (ErrorCode.NONE, None)
            if self.elect(topic, index, state, election)
            else _NOT_AVAILABLE[election]
        )
