"""The log: a test for each law of `penstock.raft` that is about it (invariants 17 and 18)."""

from __future__ import annotations

import pytest

from penstock.errors import ErrorCode, InvariantBroken
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    Answered,
    AppendRecords,
    Commit,
    FetchAnswer,
    FetchSnapshot,
    InstallSnapshot,
    Resign,
    Send,
    SnapshotProgress,
    Sync,
    TellBegin,
    TellEnd,
    Truncate,
    Unreachable,
)
from penstock.raft.roles import Leader, Prospective, Unattached
from tests.raft.raft_bench import TIMING, Bench, replies, the_fetch

# Leading


def leader(log: list[int] | None = None, voters: tuple[int, ...] = (1, 2, 3)) -> Bench:
    """It begins its epoch with a record of its own, not synced yet."""
    bench = Bench(log=log, voters=voters)
    bench.elect()
    assert bench.is_a(Leader)
    return bench


def test_committed_is_what_a_majority_has_synced() -> None:
    bench = leader()
    assert bench.sync() == []
    assert Commit(1) in bench.fetch(2, 1, 1)
    assert bench.raft.high_watermark == 1


def test_the_leaders_own_end_counts_only_once_it_is_synced() -> None:
    bench = leader()
    assert Commit(1) not in bench.fetch(2, 1, 1)
    assert Commit(1) in bench.sync()


def test_two_followers_are_a_majority_without_the_leaders_disk() -> None:
    bench = leader()
    bench.fetch(2, 1, 1)
    assert Commit(1) in bench.fetch(3, 1, 1)


def test_an_earlier_epochs_entry_is_not_committed_by_counting() -> None:
    bench = leader(log=[1, 1])
    assert bench.log.epochs == [1, 1, 2]
    bench.sync()
    bench.fetch(2, 2, 1)
    assert bench.raft.high_watermark == 0, "offsets 0 and 1 are on a majority, but of epoch 1"
    assert Commit(3) in bench.fetch(2, 3, 2)


def test_progress_counts_only_where_logs_match() -> None:
    bench = leader(log=[1, 1])
    bench.sync()
    effects = bench.fetch(2, 3, 1)
    assert replies(effects) == [
        FetchAnswer(ErrorCode.NONE, 1, 2, 0, diverging=OffsetAndEpoch(2, 1))
    ]
    assert bench.raft.high_watermark == 0


def test_the_high_watermark_never_goes_back() -> None:
    bench = leader()
    bench.sync()
    bench.fetch(2, 1, 1)
    bench.fetch(2, 0, 0)
    assert bench.raft.high_watermark == 1


def test_observers_do_not_count() -> None:
    bench = leader()
    bench.sync()
    bench.fetch(9, 1, 1)
    bench.fetch(-1, 1, 1)
    assert bench.raft.high_watermark == 0


def test_a_fetch_waits_for_records_or_a_watermark_or_its_time() -> None:
    bench = leader()
    assert replies(bench.fetch(2, 1, 1, high_watermark=0)) == []
    assert [answer.high_watermark for answer in replies(bench.sync())] == [1]
    assert replies(bench.fetch(2, 1, 1, high_watermark=1)) == []
    assert [answer.read_from for answer in replies(bench.wait(0.5))] == [1]
    assert [answer.read_from for answer in replies(bench.fetch(2, 0, 0, high_watermark=1))] == [0]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_must_know_the_epoch(epoch: int, error: ErrorCode) -> None:
    answers = replies(leader().fetch(2, 0, 0, epoch=epoch))
    assert [answer.error for answer in answers] == [error]


def test_who_does_not_lead_says_who_does() -> None:
    bench = Bench()
    bench.follow(3, epoch=4)
    assert replies(bench.fetch(2, 0, 0)) == [FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 4)]


def test_a_leader_that_no_majority_fetches_from_steps_down() -> None:
    bench = leader(voters=(1, 2, 3, 4, 5))
    for _second in range(4):
        bench.wait(1.0)
        bench.fetch(2, 1, 1, high_watermark=9)
        if bench.is_a(Leader):
            bench.fetch(3, 1, 1, high_watermark=9)
    assert bench.is_a(Leader)
    bench.wait(1.0)
    bench.fetch(2, 1, 1, high_watermark=9)
    bench.wait(2.0)
    bench.fetch(2, 1, 1, high_watermark=9)
    bench.wait(0.1)
    assert bench.is_a(Unattached, Prospective)


def test_voters_that_do_not_fetch_are_told_again_who_leads() -> None:
    bench = leader()
    bench.fetch(2, 1, 1, high_watermark=9)
    assert bench.wait(0.5)[-1] == Send(3, TellBegin(1))


def test_a_leader_that_stops_names_those_that_have_the_most() -> None:
    bench = leader(log=[1, 1])
    bench.fetch(2, 1, 1, high_watermark=9)
    bench.fetch(3, 3, 2, high_watermark=9)
    effects = bench.step(Resign())
    assert [effect for effect in effects if isinstance(effect, Send)] == [
        Send(2, TellEnd(2, (3, 2))),
        Send(3, TellEnd(2, (3, 2))),
    ]
    assert bench.wait(100) == [], "it stands for election no more"


# Following


def follower(log: list[int] | None = None) -> Bench:
    return Bench(log=log)


def test_a_follower_fetches_from_its_synced_end() -> None:
    bench = follower(log=[1, 1])
    asked = bench.follow(2, epoch=3)
    assert (asked.offset, asked.last_epoch) == (2, 1)
    effects = bench.answer_fetch(2, asked, records=[3, 3])
    assert effects == [AppendRecords([3, 3]), Sync()], "no fetch before the disk is done"  # type: ignore[arg-type] # a MemoryLog's records
    assert bench.wait(0.1) == []
    assert the_fetch(bench.sync()).offset == 4


def test_the_watermark_is_at_most_what_the_follower_has() -> None:
    bench = follower()
    asked = bench.follow(2, epoch=3)
    bench.answer_fetch(2, asked, records=[3, 3], high_watermark=5)
    assert bench.sync()[0] == Commit(2)


def test_a_diverging_log_is_cut_at_the_end_of_the_common_epoch() -> None:
    bench = follower(log=[1, 1, 2, 2])
    asked = bench.follow(2, epoch=3)
    effects = bench.answer_fetch(2, asked, diverging=OffsetAndEpoch(1, 1))
    assert effects == [Truncate(1)]
    assert the_fetch(bench.sync()).last_epoch == 1


def test_a_log_that_was_cut_is_not_committed_before_it_matches() -> None:
    """It may have to be cut again: 1 and 3 are epochs that the leader's log does not have."""
    bench = follower(log=[1, 3])
    asked = bench.follow(2, epoch=4)
    assert bench.answer_fetch(2, asked, diverging=OffsetAndEpoch(1, 2), high_watermark=4) == [
        Truncate(1)
    ]
    again = the_fetch(bench.sync())
    assert (again.offset, again.last_epoch, again.high_watermark) == (1, 1, 0)
    assert bench.answer_fetch(2, again, diverging=OffsetAndEpoch(0, 1), high_watermark=4) == [
        Truncate(0)
    ]
    bench.answer_fetch(2, the_fetch(bench.sync()), records=[2, 4], high_watermark=4)
    assert bench.sync()[0] == Commit(2)


def test_an_epoch_that_only_the_leader_has_is_no_place_to_cut() -> None:
    bench = follower(log=[1, 1, 4])
    asked = bench.follow(2, epoch=5)
    assert bench.answer_fetch(2, asked, diverging=OffsetAndEpoch(9, 3)) == [Truncate(2)]


def test_nothing_committed_is_cut() -> None:
    bench = follower(log=[1, 1])
    asked = bench.follow(2, epoch=3)
    bench.answer_fetch(2, asked, high_watermark=2)
    with pytest.raises(InvariantBroken):
        bench.answer_fetch(2, bench.fetching, diverging=OffsetAndEpoch(1, 1))


def test_an_answer_from_an_earlier_epoch_is_ignored() -> None:
    bench = follower()
    old = bench.follow(2, epoch=3)
    bench.follow(3, epoch=4)
    assert bench.answer_fetch(2, old, records=[3]) == []


def test_an_observer_asks_around_until_it_finds_the_leader() -> None:
    bench = Bench(node_id=9)
    bench.step(Unreachable(1, bench.fetching))
    asked = the_fetch(bench.wait(TIMING.retry))
    effects = bench.step(Answered(1, asked, FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH, 2, 7)))
    assert the_fetch(effects).epoch == 7
    assert bench.raft.leader_id == 2


def test_an_observer_never_stands_for_election() -> None:
    bench = Bench(node_id=9)
    bench.wait(100)
    assert bench.is_a(Unattached)


# Snapshots


def test_who_is_behind_the_leaders_log_is_told_of_its_snapshot() -> None:
    bench = leader()
    snapshot = OffsetAndEpoch(7, 1)
    bench.log.start, bench.log.start_snapshot, bench.log.latest_snapshot = (
        5,
        OffsetAndEpoch(5, 1),
        snapshot,
    )
    assert [answer.snapshot for answer in replies(bench.fetch(2, 3, 1))] == [snapshot]
    assert [answer.snapshot for answer in replies(bench.fetch(2, 0, 0))] == [snapshot]
    assert [answer.snapshot for answer in replies(bench.fetch(2, 5, 0))] == [snapshot], (
        "the same end, but of another epoch"
    )
    assert [answer.snapshot for answer in replies(bench.fetch(2, 5, 1))] == [None]


def test_a_snapshot_is_fetched_installed_and_counts_as_committed() -> None:
    bench = follower()
    snapshot = OffsetAndEpoch(7, 1)
    asked = bench.follow(2, epoch=3)
    assert bench.answer_fetch(2, asked, snapshot=snapshot) == [FetchSnapshot(2, 3, snapshot)]
    bench.wait(TIMING.fetch_timeout - 0.1)
    assert bench.step(SnapshotProgress(2, 3, snapshot)) == []
    bench.wait(TIMING.fetch_timeout - 0.1)
    assert bench.step(SnapshotProgress(2, 3, snapshot, done=True)) == [
        InstallSnapshot(snapshot),
        Commit(7),
    ]


def test_a_snapshot_of_an_earlier_leader_is_not_installed_and_a_leader_installs_none() -> None:
    bench = follower()
    snapshot = OffsetAndEpoch(7, 1)
    asked = bench.follow(2, epoch=3)
    bench.answer_fetch(2, asked, snapshot=snapshot)
    bench.follow(3, epoch=4)
    assert bench.step(SnapshotProgress(2, 3, snapshot, done=True)) == []
    bench = leader()
    assert bench.step(SnapshotProgress(2, 1, snapshot, done=True)) == []
