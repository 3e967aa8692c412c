"""Simulated quorums under crashes, power loss, partitions and slow disks (rules 16, 17, 18)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.quorum_state_store import QuorumStateStore
from penstock.raft import follower, leader
from penstock.raft.messages import ElectionState, Synced
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import LeaderState
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.quorum.run import run_quorum
from tests.sim.seeds import Seeds, seeds_of

# Planted bugs that take more than a few seconds to find are left to `make drill`.
DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
SEEDS = 400


@seeds_of("quorum")
def test_rules_hold(seeds: Seeds) -> None:
    with quiet():
        reports = [run_quorum(seed) for seed in seeds]
    assert sum(report.elections for report in reports) > len(reports)
    assert sum(report.acknowledged for report in reports) > len(reports)


def test_a_seed_determines_its_run() -> None:
    with quiet():
        first, repeated, other = run_quorum(7), run_quorum(7), run_quorum(8)
    assert first == repeated
    assert first.digest != other.digest


# Planted bugs: the checkers must find each of them.


async def _save_nothing(_store: QuorumStateStore, _state: ElectionState) -> None: ...


def votes_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumStateStore, "save", _save_nothing)


def _always(_state: LeaderState, _offset: int) -> bool:
    return True


def earlier_epochs_are_committed_by_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader, "is_committable", _always)


def _unsynced_end(quorum: QuorumState) -> int:
    return quorum.log.end.offset


def leader_counts_its_unsynced_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader, "local_end_offset", _unsynced_end)


_sync = RaftDriver._sync


async def _deliver_synced_first(driver: RaftDriver) -> None:
    driver.deliver(Synced())
    await _sync(driver)


def _always_synced(_quorum: QuorumState) -> bool:
    return True


def followers_fetch_with_their_unsynced_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower, "is_log_synced", _always_synced)
    patch.setattr(RaftDriver, "_sync", _deliver_synced_first)


PLANTED: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    votes_are_not_saved,
    followers_fetch_with_their_unsynced_end,
    leader_counts_its_unsynced_end,
    earlier_epochs_are_committed_by_counting,
)


@pytest.mark.parametrize("plant", PLANTED if DRILL else PLANTED[:2])
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with quiet(), pytest.raises(InvariantViolated):
        for seed in range(SEEDS):
            run_quorum(seed)
