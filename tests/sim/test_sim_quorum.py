"""Simulated quorums under crashes, power loss, partitions, damaged and wiped disks (rules 16 to 20,
24 and 25)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.planted import PlantedBug
from penstock.sim.planted.defects import uncommitted_metadata_is_applied
from penstock.sim.planted.explore import (
    PLANTED_QUORUM,
    damaged_snapshots_are_served,
    earlier_epochs_are_committed_by_counting,
    snapshot_downloads_do_not_count,
)
from penstock.sim.planted.membership import PLANTED_MEMBERSHIP, removed_leader_counts_itself
from penstock.sim.quorum.run import run_quorum
from tests.sim.seeds import Seeds, seeds_of

# Planted bugs that take more than a few seconds to find are left to `make drill`.
SLOW = (
    uncommitted_metadata_is_applied,
    damaged_snapshots_are_served,
    snapshot_downloads_do_not_count,
    removed_leader_counts_itself,
)
IS_DRILL = os.environ.get("PENSTOCK_DRILL") == "1"
PLANTED = [bug for bug in (*PLANTED_QUORUM, *PLANTED_MEMBERSHIP) if IS_DRILL or bug not in SLOW]
CAUGHT_WITHIN_SEEDS = 200


@seeds_of("quorum")
def test_rules_hold(seeds: Seeds) -> None:
    with quiet():
        reports = [run_quorum(seed) for seed in seeds]
    assert sum(report.elections for report in reports) > len(reports)
    assert sum(report.acknowledged for report in reports) > len(reports)
    assert any(report.snapshots_fetched for report in reports)
    if len(reports) > 20:
        assert any(report.voters_added for report in reports)
        assert any(report.voters_removed for report in reports)
        assert any(report.voters_wiped for report in reports)


def test_a_seed_determines_its_run() -> None:
    with quiet():
        first, repeated, other = run_quorum(7), run_quorum(7), run_quorum(8)
    assert first == repeated
    assert first.digest != other.digest


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(
    plant: PlantedBug, record_property: Callable[[str, object], None]
) -> None:
    with quiet(), plant(), pytest.raises(InvariantViolated) as caught:
        for seed in range(CAUGHT_WITHIN_SEEDS):
            run_quorum(seed)
    record_property("note", f"planted, {plant.__name__}: {str(caught.value).splitlines()[0]}")


def test_figure_8_is_found_by_its_rule() -> None:
    """An entry of an earlier epoch is committed by counting alone (rule 17)."""
    with (
        quiet(),
        earlier_epochs_are_committed_by_counting(),
        pytest.raises(InvariantViolated, match="by an entry of epoch"),
    ):
        for seed in range(CAUGHT_WITHIN_SEEDS):
            run_quorum(seed)


def test_a_failure_says_how_to_repeat_it() -> None:
    with (
        quiet(),
        earlier_epochs_are_committed_by_counting(),
        pytest.raises(InvariantViolated, match=r"python -m penstock.sim --quorum --seed \d+$"),
    ):
        for seed in range(CAUGHT_WITHIN_SEEDS):
            run_quorum(seed)
