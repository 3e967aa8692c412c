"""The quorum in simulation, under crashes, power loss, partitions and slow disks (invariants 16,
17, 18)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

import pytest

from penstock.node.quorum.driver import Driver
from penstock.node.quorum.log import QuorumLog
from penstock.raft import following, leading
from penstock.raft.core import Core
from penstock.raft.messages import ElectionState, Synced
from penstock.raft.roles import Leader
from penstock.sim.log.model import Broken
from penstock.sim.quiet import quiet
from penstock.sim.quorum.run import run_quorum

# Its share of the five minutes that all simulation has in `make test`.
SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "40"))
# Bugs that take more than a few seconds to find are planted by `make drill` alone.
DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
SEEDS = 400


def test_fresh_seeds_of_a_quorum(record_property: Callable[[str, object], None]) -> None:
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


def test_one_seed_is_one_run() -> None:
    with quiet():
        first, again, other = run_quorum(7), run_quorum(7), run_quorum(8)
    assert first == again
    assert first.digest != other.digest


# Planted bugs, each of which the checkers must find.


async def _save_nothing(
    _log: QuorumLog, _cluster_id: str, _voters: tuple[int, ...], _state: ElectionState
) -> None: ...


def votes_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumLog, "save_state", _save_nothing)


def _always(_role: Leader, _offset: int) -> bool:
    return True


def earlier_epochs_are_committed_by_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading, "may_commit", _always)


def _unsynced_end(core: Core) -> int:
    return core.log.end.offset


def the_leader_counts_its_unsynced_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading, "own_end", _unsynced_end)


_sync = Driver._sync


async def _say_synced_first(driver: Driver) -> None:
    driver.deliver(Synced())
    await _sync(driver)


def _at_once(_core: Core) -> bool:
    return True


def followers_fetch_with_their_unsynced_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(following, "may_fetch", _at_once)
    patch.setattr(Driver, "_sync", _say_synced_first)


PLANTED: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    votes_are_not_saved,
    followers_fetch_with_their_unsynced_end,
    the_leader_counts_its_unsynced_end,
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
