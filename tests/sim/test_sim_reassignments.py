"""Clusters whose partitions move between brokers, in simulation: the rules hold, and planted bugs
are caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.cluster.run import run_cluster, run_reassignments
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.planted.catching import PLANTS, Plant, find_seed, read_caught
from penstock.sim.planted.reassignments import (
    PLANTED_REASSIGNMENTS,
    reassignments_complete_too_early,
)
from penstock.sim.results import Results
from tests.sim.seeds import Seeds, seeds_of

# `python -m penstock.sim.planted` plants all bugs, and writes docs/PLANTED.csv.
QUICK_BUGS = ("cancelled_reassignments_keep_new_replicas",)
CAUGHT = read_caught(Path(__file__).parents[2] / "docs" / "PLANTED.csv")
# If the seed of docs/PLANTED.csv does not catch a bug any more, these are tried.
OTHER_SEEDS = range(20)


@seeds_of("reassignments")
def test_rules_hold(
    seeds: Seeds, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    results = Results(tmp_path / "results.csv", "", "reassignments")
    with quiet():
        for seed in seeds:
            results.add_passed(run_reassignments(seed))
    record_property("note", f"simulation of reassignments: {results}")
    assert results.numbers["seeds"] > results.numbers["uncounted"]
    assert results.totals["reassignments started"] > results.numbers["seeds"]
    assert results.totals["reassignments cancelled"] > 0


@pytest.mark.parametrize(
    "plant",
    [pytest.param(plant, id=plant.name) for plant in PLANTS if plant.name in QUICK_BUGS],
)
def test_a_planted_bug_is_caught(
    plant: Plant, record_property: Callable[[str, object], None]
) -> None:
    found = find_seed(plant, [CAUGHT[plant.name].seed, *OTHER_SEEDS])
    assert found is not None
    record_property("note", f"planted, {plant.name}: {found.violation}")


def test_all_bugs_in_reassignments_are_caught() -> None:
    assert {bug.__name__ for bug in PLANTED_REASSIGNMENTS} <= set(CAUGHT)


@pytest.mark.more
def test_a_seed_gives_the_same_run_twice_and_another_one_without_reassignments() -> None:
    with quiet():
        digests = [run_reassignments(2).digest, run_reassignments(2).digest, run_cluster(2).digest]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_failure_says_how_to_repeat_it() -> None:
    seed = CAUGHT["reassignments_complete_too_early"].seed
    with (
        quiet(),
        reassignments_complete_too_early(),
        pytest.raises(
            InvariantViolated, match=rf"python -m penstock.sim --reassignments --seed {seed}$"
        ),
    ):
        run_reassignments(seed)
