"""Simulated quorums under crashes, power loss, partitions and slow disks (rules 16, 17, 18)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

import pytest

from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.quorum_state_store import QuorumStateStore
from penstock.raft import follower, leader
from penstock.raft.messages import ElectionState, Synced
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import LeaderState
from penstock.sim.log.model import Broken
from penstock.sim.quiet import quiet
from penstock.sim.quorum.run import run_quorum

# The share of this module in the five minutes of all simulations of `make test`.
SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "40"))
# Planted bugs that take more than a few seconds to find are left to `make drill`.
DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
SEEDS = 400


def test_fresh_seeds(record_property: Callable[[str, object], None]) -> None:
    deadline = time.monotonic() + SECONDS
    count = elections = acknowledged = 0
    with quiet():
        while time.monotonic() < deadline:
            report = run_quorum(secrets.randbits(48))
            count, elections, acknowledged = (
                count + 1,
                elections + report.elections,
                acknowledged + report.acknowledged,
            )
    record_property(
        "note",
        (
            f"quorum simulation: {count} fresh seeds, {elections} elections, {acknowledged} "
            "acknowledged writes"
        ),
    )
    assert count > 0
    assert elections > count
    assert acknowledged > count


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
    with quiet(), pytest.raises(Broken):
        for seed in range(SEEDS):
            run_quorum(seed)
