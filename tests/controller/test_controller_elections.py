"""ElectLeaders, and the periodic elections."""

from __future__ import annotations

import pytest

from penstock.controller.decision import ControllerResult
from penstock.controller.partitions.elections import (
    elect_leaders,
    elect_unclean_leaders,
    rebalance_leaders,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, MetadataImage
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tests.controller.clusters import (
    after,
    broker,
    context,
    partition,
    running,
    state_of,
    with_topic,
)

PREFERRED, UNCLEAN = 0, 1
Asked = ElectLeadersRequest.TopicPartition

DISPLACED = partition(1, 2, 3, leader=2)
BEHIND = partition(1, 2, 3, isr=(2, 3))
OFFLINE = partition(1, 2, isr=(), last_known_elr=(1,), eligible_leader_replicas=(1,))


def three(*fenced: int) -> MetadataImage:
    return running(*(broker(index, fenced=index in fenced) for index in (1, 2, 3)))


def elect(
    image: MetadataImage, kind: int, *partitions: int, topic: str = "t"
) -> ControllerResult[ElectLeadersResponse]:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=(Asked(topic=topic, partitions=partitions),)
    )
    return elect_leaders(image, request, context())


def results(decision: ControllerResult[ElectLeadersResponse]) -> list[tuple[int, int, str | None]]:
    results = decision.response.replica_election_results[0].partition_result
    return [(result.partition_id, result.error_code, result.error_message) for result in results]


def test_preferred_leader_is_elected() -> None:
    image = with_topic(three(), DISPLACED)
    decision = elect(image, PREFERRED, 0)
    assert results(decision) == [(0, ErrorCode.NONE, None)]
    assert (
        state_of(after(image, decision)).leader,
        state_of(after(image, decision)).leader_epoch,
    ) == (1, 1)


def test_elections_that_are_not_needed_or_not_possible() -> None:
    image = with_topic(three(), partition(1, 2, 3), BEHIND)
    decision = elect(image, PREFERRED, 0, 1, 2)
    assert decision.records == ()
    assert results(decision) == [
        (0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-2"),
    ]
    assert results(elect(image, PREFERRED, 0, topic="u")) == [
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as u")
    ]


def test_requested_unclean_election_needs_no_setting() -> None:
    image = with_topic(three(1), OFFLINE, partition(2, 3))
    decision = elect(image, UNCLEAN, 0, 1)
    assert [code for _index, code, _message in results(decision)] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert state_of(after(image, decision)).leader == 2
    assert len(decision.warnings) == 1


def test_unclean_election_without_live_replicas_fails() -> None:
    decision = elect(with_topic(three(1, 2), OFFLINE), UNCLEAN, 0)
    assert results(decision) == [
        (
            0,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    ]


def test_election_of_all_partitions_lists_only_those_that_need_one() -> None:
    image = with_topic(
        with_topic(three(), partition(1, 2), DISPLACED, BEHIND),
        DISPLACED,
        name="u",
        topic_id=broker(9).incarnation_id,
    )
    decision = elect_leaders(
        image, ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None), context()
    )
    listed = [
        (topic.topic, [result.partition_id for result in topic.partition_result])
        for topic in decision.response.replica_election_results
    ]
    assert listed == [("t", [1, 2]), ("u", [0])]
    assert len(decision.records) == 2


def test_unknown_election_type_is_refused() -> None:
    with pytest.raises(KafkaError, match="Unknown election type 7") as refused:
        elect(three(), 7, 0)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_leadership_returns_to_preferred_leaders_that_are_in_sync() -> None:
    image = with_topic(three(), DISPLACED, BEHIND, partition(1, 2))
    decision = rebalance_leaders(image, context())
    now = after(image, decision)
    assert [state_of(now, index).leader for index in range(3)] == [1, 2, 1]
    assert (len(decision.records), decision.response) == (1, False)
    assert rebalance_leaders(now, context()).records == ()


def test_rebalancing_round_is_bounded() -> None:
    image = with_topic(three(), DISPLACED, DISPLACED, DISPLACED)
    first = rebalance_leaders(image, context(), limit=2)
    assert (len(first.records), first.response) == (2, True)
    rest = rebalance_leaders(after(image, first), context(), limit=2)
    assert (len(rest.records), rest.response) == (1, False)


def test_leaderless_partition_is_elected_after_unclean_election_is_enabled() -> None:
    image = with_topic(three(1), OFFLINE)
    assert elect_unclean_leaders(image, context()).records == ()
    allowed = with_topic(three(1), OFFLINE, unclean_leader_election_enable="true")
    decision = elect_unclean_leaders(allowed, context())
    assert state_of(after(allowed, decision)).leader == 2
    assert state_of(allowed).leader == NO_LEADER
