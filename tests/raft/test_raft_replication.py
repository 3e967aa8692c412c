"""Replication: a test for each law of `penstock.raft.machine` about the log (rules 17 and 18)."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, InvariantBroken
from penstock.limits import MAX_QUORUM_OBSERVERS
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AppendRecords,
    BeginQuorumEpochRequest,
    Commit,
    EndQuorumEpochRequest,
    FetchResponse,
    FetchSnapshot,
    InstallSnapshot,
    RequestFailed,
    Resign,
    ResponseReceived,
    SendRequest,
    SnapshotPieceServed,
    SnapshotProgress,
    Sync,
    Truncate,
)
from penstock.raft.states import LeaderState, ProspectiveState, UnattachedState
from tests.raft.raft_harness import TIMING, Harness, fetch_responses, sent_fetch

# Leading


def leader(log: list[int] | None = None, voters: tuple[int, ...] = (1, 2, 3)) -> Harness:
    """Return an elected leader whose LeaderChangeMessage is not synced yet."""
    harness = Harness(log=log, voters=voters)
    harness.elect()
    assert harness.is_in(LeaderState)
    return harness


def test_records_are_committed_when_a_majority_has_synced_them() -> None:
    harness = leader()
    assert harness.sync() == []
    assert Commit(1) in harness.fetch(2, 1, 1)
    assert harness.raft.high_watermark == 1


def test_leaders_own_log_end_counts_only_once_synced() -> None:
    harness = leader()
    assert Commit(1) not in harness.fetch(2, 1, 1)
    assert Commit(1) in harness.sync()


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    harness = leader()
    harness.fetch(2, 1, 1)
    assert Commit(1) in harness.fetch(3, 1, 1)


def test_record_of_an_earlier_epoch_is_not_committed_by_counting() -> None:
    harness = leader(log=[1, 1])
    assert harness.log.epochs == [1, 1, 2]
    harness.sync()
    harness.fetch(2, 2, 1)
    assert harness.raft.high_watermark == 0, "offsets 0 and 1 are on a majority, but of epoch 1"
    assert Commit(3) in harness.fetch(2, 3, 2)


def test_fetch_counts_only_if_the_logs_match() -> None:
    harness = leader(log=[1, 1])
    harness.sync()
    effects = harness.fetch(2, 3, 1)
    assert fetch_responses(effects) == [
        FetchResponse(ErrorCode.NONE, 1, 2, 0, diverging=OffsetAndEpoch(2, 1))
    ]
    assert harness.raft.high_watermark == 0


def test_high_watermark_never_decreases() -> None:
    harness = leader()
    harness.sync()
    harness.fetch(2, 1, 1)
    harness.fetch(2, 0, 0)
    assert harness.raft.high_watermark == 1


def test_observers_do_not_count_towards_the_majority() -> None:
    harness = leader()
    harness.sync()
    harness.fetch(9, 1, 1)
    harness.fetch(-1, 1, 1)
    assert harness.raft.high_watermark == 0


def test_fetch_waits_for_records_or_a_high_watermark_or_its_max_wait() -> None:
    harness = leader()
    assert fetch_responses(harness.fetch(2, 1, 1, high_watermark=0)) == []
    assert [response.high_watermark for response in fetch_responses(harness.sync())] == [1]
    assert fetch_responses(harness.fetch(2, 1, 1, high_watermark=1)) == []
    assert [response.read_from for response in fetch_responses(harness.wait(0.5))] == [1]
    assert [
        response.read_from for response in fetch_responses(harness.fetch(2, 0, 0, high_watermark=1))
    ] == [0]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_must_have_the_current_epoch(epoch: int, error: ErrorCode) -> None:
    responses = fetch_responses(leader().fetch(2, 0, 0, epoch=epoch))
    assert [response.error for response in responses] == [error]


def test_follower_responds_to_a_fetch_with_the_leader_id() -> None:
    harness = Harness()
    harness.follow(3, epoch=4)
    assert fetch_responses(harness.fetch(2, 0, 0)) == [
        FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4)
    ]


def test_leader_without_fetches_of_a_majority_steps_down() -> None:
    harness = leader(voters=(1, 2, 3, 4, 5))
    for _second in range(4):
        harness.wait(1.0)
        harness.fetch(2, 1, 1, high_watermark=9)
        if harness.is_in(LeaderState):
            harness.fetch(3, 1, 1, high_watermark=9)
    assert harness.is_in(LeaderState)
    harness.wait(1.0)
    harness.fetch(2, 1, 1, high_watermark=9)
    harness.wait(2.0)
    harness.fetch(2, 1, 1, high_watermark=9)
    harness.wait(0.1)
    assert harness.is_in(UnattachedState, ProspectiveState)


def test_snapshot_fetches_of_a_voter_keep_the_leader() -> None:
    harness = leader()
    for _second in range(10):
        harness.wait(1.0)
        harness.step(SnapshotPieceServed(2, harness.raft.epoch))
        assert harness.is_in(LeaderState)
    for _second in range(3):
        harness.wait(1.0)
        harness.step(SnapshotPieceServed(9, harness.raft.epoch))
        harness.step(SnapshotPieceServed(2, harness.raft.epoch - 1))
    assert harness.is_in(UnattachedState, ProspectiveState), "neither an observer nor an old epoch"


def observers(harness: Harness) -> list[int]:
    state = harness.raft.state
    assert isinstance(state, LeaderState)
    return [key.id for key in state.observers]


def test_observer_is_forgotten_five_minutes_after_its_last_fetch() -> None:
    harness = leader(voters=(1,))
    harness.fetch(9, 1, 1)
    harness.fetch(8, 1, 1)
    harness.wait(200)
    harness.fetch(9, 1, 1)
    assert harness.raft.deadline <= harness.now + 100
    harness.wait(100)
    assert observers(harness) == [9]
    harness.wait(200)
    assert observers(harness) == []


def test_number_of_remembered_observers_is_bounded() -> None:
    harness = leader(voters=(1,))
    for observer in range(2, MAX_QUORUM_OBSERVERS + 12):
        harness.fetch(observer, 0, 0)
    assert len(observers(harness)) == MAX_QUORUM_OBSERVERS
    assert observers(harness)[-1] == MAX_QUORUM_OBSERVERS + 11, "the longest silent one is dropped"


def test_begin_quorum_epoch_is_repeated_until_a_voter_fetches() -> None:
    harness = leader()
    harness.fetch(2, 1, 1, high_watermark=9)
    assert harness.wait(0.5)[-1] == SendRequest(3, BeginQuorumEpochRequest(1))


def test_resigning_leader_prefers_successors_with_the_longest_log() -> None:
    harness = leader(log=[1, 1])
    harness.fetch(2, 1, 1, high_watermark=9)
    harness.fetch(3, 3, 2, high_watermark=9)
    effects = harness.step(Resign())
    assert [effect for effect in effects if isinstance(effect, SendRequest)] == [
        SendRequest(2, EndQuorumEpochRequest(2, (3, 2))),
        SendRequest(3, EndQuorumEpochRequest(2, (3, 2))),
    ]
    assert harness.wait(100) == [], "it starts no further election"


# Following


def follower(log: list[int] | None = None) -> Harness:
    return Harness(log=log)


def test_follower_fetches_from_its_synced_end() -> None:
    harness = follower(log=[1, 1])
    request = harness.follow(2, epoch=3)
    assert (request.offset, request.last_fetched_epoch) == (2, 1)
    effects = harness.respond_to_fetch(2, request, records=[3, 3])
    assert effects == [AppendRecords([3, 3]), Sync()], "no fetch before the sync"  # type: ignore[arg-type] # a MemoryLog's records
    assert harness.wait(0.1) == []
    assert sent_fetch(harness.sync()).offset == 4


def test_followers_high_watermark_is_at_most_its_log_end() -> None:
    harness = follower()
    request = harness.follow(2, epoch=3)
    harness.respond_to_fetch(2, request, records=[3, 3], high_watermark=5)
    assert harness.sync()[0] == Commit(2)


def test_diverging_log_is_truncated_at_the_end_of_the_common_epoch() -> None:
    harness = follower(log=[1, 1, 2, 2])
    request = harness.follow(2, epoch=3)
    effects = harness.respond_to_fetch(2, request, diverging=OffsetAndEpoch(1, 1))
    assert effects == [Truncate(1)]
    assert sent_fetch(harness.sync()).last_fetched_epoch == 1


def test_truncated_log_is_not_committed_before_it_matches() -> None:
    """The log may have to be truncated again: the leader's log has neither epoch 1 nor 3."""
    harness = follower(log=[1, 3])
    request = harness.follow(2, epoch=4)
    assert harness.respond_to_fetch(
        2, request, diverging=OffsetAndEpoch(1, 2), high_watermark=4
    ) == [Truncate(1)]
    again = sent_fetch(harness.sync())
    assert (again.offset, again.last_fetched_epoch, again.high_watermark) == (1, 1, 0)
    assert harness.respond_to_fetch(2, again, diverging=OffsetAndEpoch(0, 1), high_watermark=4) == [
        Truncate(0)
    ]
    harness.respond_to_fetch(2, sent_fetch(harness.sync()), records=[2, 4], high_watermark=4)
    assert harness.sync()[0] == Commit(2)


def test_epoch_that_only_the_leader_has_does_not_bound_the_truncation() -> None:
    harness = follower(log=[1, 1, 4])
    request = harness.follow(2, epoch=5)
    assert harness.respond_to_fetch(2, request, diverging=OffsetAndEpoch(9, 3)) == [Truncate(2)]


def test_committed_records_are_never_truncated() -> None:
    harness = follower(log=[1, 1])
    request = harness.follow(2, epoch=3)
    harness.respond_to_fetch(2, request, high_watermark=2)
    with pytest.raises(InvariantBroken):
        harness.respond_to_fetch(2, harness.fetch_in_flight, diverging=OffsetAndEpoch(1, 1))


def test_response_of_an_earlier_epoch_is_ignored() -> None:
    harness = follower()
    old = harness.follow(2, epoch=3)
    harness.follow(3, epoch=4)
    assert harness.respond_to_fetch(2, old, records=[3]) == []


def test_observer_asks_voters_until_it_finds_the_leader() -> None:
    harness = Harness(node_id=9)
    harness.step(RequestFailed(1, harness.fetch_in_flight))
    request = sent_fetch(harness.wait(TIMING.retry_backoff))
    effects = harness.step(
        ResponseReceived(1, request, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 2, 7))
    )
    assert sent_fetch(effects).epoch == 7
    assert harness.raft.leader_id == 2


def test_observer_never_starts_an_election() -> None:
    harness = Harness(node_id=9)
    harness.wait(100)
    assert harness.is_in(UnattachedState)


# Snapshots


def test_replica_behind_the_log_start_gets_the_latest_snapshot_id() -> None:
    harness = leader()
    snapshot = OffsetAndEpoch(7, 1)
    harness.log.start, harness.log.start_snapshot, harness.log.latest_snapshot = (
        5,
        OffsetAndEpoch(5, 1),
        snapshot,
    )
    assert [response.snapshot for response in fetch_responses(harness.fetch(2, 3, 1))] == [snapshot]
    assert [response.snapshot for response in fetch_responses(harness.fetch(2, 0, 0))] == [snapshot]
    assert [response.snapshot for response in fetch_responses(harness.fetch(2, 5, 0))] == [
        snapshot
    ], "the same end, but of another epoch"
    assert [response.snapshot for response in fetch_responses(harness.fetch(2, 5, 1))] == [None]


def test_snapshot_is_fetched_installed_and_committed() -> None:
    harness = follower()
    snapshot = OffsetAndEpoch(7, 1)
    request = harness.follow(2, epoch=3)
    assert harness.respond_to_fetch(2, request, snapshot=snapshot) == [
        FetchSnapshot(2, 3, snapshot)
    ]
    harness.wait(TIMING.fetch_timeout - 0.1)
    assert harness.step(SnapshotProgress(2, 3, snapshot)) == []
    harness.wait(TIMING.fetch_timeout - 0.1)
    assert harness.step(SnapshotProgress(2, 3, snapshot, done=True)) == [InstallSnapshot(snapshot)]
    harness.log.install(snapshot)
    effects = harness.sync()
    assert effects[0] == Commit(7)
    assert sent_fetch(effects).offset == 7


def test_high_watermark_advances_only_when_the_snapshot_is_installed() -> None:
    """Until then the records below it may be diverging ones, which must not be applied."""
    harness = follower(log=[1, 2, 2, 2])
    snapshot = OffsetAndEpoch(3, 3)
    request = harness.follow(2, epoch=4)
    harness.respond_to_fetch(2, request, snapshot=snapshot)
    harness.step(SnapshotProgress(2, 4, snapshot, done=True))
    assert harness.raft.high_watermark == 0
    harness.log.install(snapshot)
    assert harness.sync()[0] == Commit(3)


def test_installed_snapshot_is_committed_also_if_the_leader_changed_meanwhile() -> None:
    harness = follower(log=[1, 2, 2, 2])
    snapshot = OffsetAndEpoch(3, 3)
    request = harness.follow(2, epoch=4)
    harness.respond_to_fetch(2, request, snapshot=snapshot)
    harness.step(SnapshotProgress(2, 4, snapshot, done=True))
    harness.log.install(snapshot)
    harness.follow(3, epoch=5)
    assert harness.sync()[0] == Commit(3)


def test_failed_snapshot_download_is_retried_and_starts_no_election() -> None:
    harness = follower()
    snapshot = OffsetAndEpoch(7, 1)
    request = harness.follow(2, epoch=3)
    for _attempt in range(10):
        harness.respond_to_fetch(2, request, snapshot=snapshot)
        assert harness.step(SnapshotProgress(2, 3, snapshot, failed=True)) == []
        request = sent_fetch(harness.wait(TIMING.retry_backoff))


def test_neither_snapshot_of_an_earlier_leader_nor_on_a_leader_is_installed() -> None:
    harness = follower()
    snapshot = OffsetAndEpoch(7, 1)
    request = harness.follow(2, epoch=3)
    harness.respond_to_fetch(2, request, snapshot=snapshot)
    harness.follow(3, epoch=4)
    assert harness.step(SnapshotProgress(2, 3, snapshot, done=True)) == []
    harness = leader()
    assert harness.step(SnapshotProgress(2, 1, snapshot, done=True)) == []
