"""Where a follower truncates its log, and which requests are fenced."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.log.leader_epochs import EpochStart, LeaderEpochs
from penstock.metadata.image import BrokerImage, PartitionState
from penstock.replica.fencing import check_leader_epoch, check_replica
from penstock.replica.follower import DivergingEpoch, follower_watermark, truncation_point
from penstock.replica.leader import Leader

PARTITION = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("diverging", "own", "end", "expected"),
    [
        (DivergingEpoch(4, 30), (4, 40), 40, 30),
        (DivergingEpoch(4, 50), (4, 40), 45, 40),
        (DivergingEpoch(4, 30), (3, 20), 40, 20),
        (DivergingEpoch(4, 30), (-1, -1), 40, 30),
        (DivergingEpoch(4, 50), (4, 40), 40, 40),
    ],
    ids=[
        "the leader's epoch is shorter",
        "the follower's epoch is shorter",
        "the follower does not have the epoch",
        "the follower has no epochs",
        "nothing to truncate",
    ],
)
def test_a_follower_truncates_where_its_log_diverges(
    diverging: DivergingEpoch, own: tuple[int, int], end: int, expected: int
) -> None:
    assert truncation_point(diverging, *own, end) == expected


# The leader epoch of each record: offset and epoch identify a record, since an epoch has one
# leader.
Log = list[int]
# For each epoch: which replica leads, how many records it appends, and how many records the other
# replica fetches after it truncated its log.
histories = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=6
)


def common_length(first: Log, second: Log) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def epochs_of(log: Log) -> LeaderEpochs:
    return LeaderEpochs(
        [
            EpochStart(epoch, offset)
            for offset, epoch in enumerate(log)
            if offset == 0 or log[offset - 1] != epoch
        ]
    )


def diverging(leader: Log, follower: Log) -> DivergingEpoch | None:
    """Return the response of a leader whose epoch is above all others."""
    if not follower:
        return None
    epochs = epochs_of(leader)
    epochs.assign(9, len(leader))
    epoch, end = epochs.end_offset_for(follower[-1], len(leader))
    return DivergingEpoch(epoch, end) if epoch < follower[-1] or end < len(follower) else None


@given(histories)
def test_truncating_and_fetching_again_ends_where_the_logs_agree(
    history: list[tuple[int, int, int]],
) -> None:
    logs: list[Log] = [[], []]
    for epoch, (leads, appended, fetched) in enumerate(history):
        leader, follower = logs[leads], logs[1 - leads]
        agreed, rounds = common_length(leader, follower), 0
        if fetched:
            while (response := diverging(leader, follower)) is not None:
                end = len(follower)
                del follower[
                    truncation_point(
                        response, *epochs_of(follower).end_offset_for(response.epoch, end), end
                    ) :
                ]
                rounds += 1
                assert rounds <= len(history), "each round goes back by at least one epoch"
            assert len(follower) == agreed
        leader += [epoch] * appended
        if fetched:
            follower += leader[agreed : agreed + fetched - 1]


def test_a_followers_high_watermark_is_bounded_by_its_log_and_never_goes_back() -> None:
    assert follower_watermark(5, 20, 10) == 10
    assert follower_watermark(5, 8, 10) == 8
    assert follower_watermark(9, 8, 10) == 9


@pytest.mark.parametrize(
    ("requested", "code"), [(6, ErrorCode.UNKNOWN_LEADER_EPOCH), (4, ErrorCode.FENCED_LEADER_EPOCH)]
)
def test_other_leader_epochs_are_fenced(requested: int, code: ErrorCode) -> None:
    check_leader_epoch(PARTITION, 5, 5)
    check_leader_epoch(PARTITION, -1, 5)
    with pytest.raises(KafkaError) as refused:
        check_leader_epoch(PARTITION, requested, 5)
    assert refused.value.code == code


BROKERS = {
    number: BrokerImage(number, 100, UUID(int=number), rack=f"r{number}", fenced=False)
    for number in (1, 2, 3)
}


@pytest.mark.parametrize(
    ("replica", "epoch", "code"),
    [
        (2, 99, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, 101, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, 100, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 100, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["earlier epoch", "no epoch", "unknown later epoch", "unknown broker", "this broker"],
)
def test_only_brokers_in_their_current_epoch_fetch_as_replicas(
    replica: int, epoch: int, code: ErrorCode
) -> None:
    check_replica(BROKERS, 1, 2, 100)
    with pytest.raises(KafkaError) as refused:
        check_replica(BROKERS, 1, replica, epoch)
    assert refused.value.code == code


def test_a_consumer_reads_from_the_in_sync_follower_in_its_rack_that_has_the_offset() -> None:
    leader = Leader(
        1,
        PartitionState(replicas=(1, 2, 3), isr=(1, 2), leader=1),
        end_offset=10,
        counted_end=10,
        high_watermark=5,
        min_insync=1,
        lag_max_s=30,
        brokers=lambda: BROKERS,
        now=0.0,
    )
    for replica in (2, 3):
        leader.fetched(replica, 100, 8, 2, 0.0)
    assert leader.preferred_read_replica("r2", 5) == 2
    for rack, offset in (("r2", 1), ("r2", 9), ("r3", 5), ("r1", 5), ("", 5), ("r9", 5)):
        assert leader.preferred_read_replica(rack, offset) == -1
