"""Whole clusters in simulation: the rules hold, runs are reproducible, and planted bugs are
caught."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.cluster.run import Report, run_cluster
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.planted.catching import (
    CAUGHT_WITHIN_SEEDS,
    PLANTS,
    Plant,
    find_seed,
    read_caught,
)
from penstock.sim.planted.cluster import acknowledged_before_replicated
from penstock.sim.results import Results
from tests.sim.seeds import Seeds, seeds_of

# Seeds whose digests are compared between two processes. `make drill` compares fifty.
COMPARED_SEEDS = int(os.environ.get("PENSTOCK_TWICE", "6"))
# `python -m penstock.sim.planted` plants all bugs, and writes docs/PLANTED.csv.
QUICK_BUGS = (
    "acknowledged_before_replicated",
    "high_watermark_of_the_proposed_isr",
    "commits_answered_before_they_are_committed",
    "last_values_are_compacted_away",
    "stale_topic_ids_reach_the_new_topic",
)
CAUGHT = read_caught(Path(__file__).parents[2] / "docs" / "PLANTED.csv")
# A change of the simulation changes what a seed does. If the seed of docs/PLANTED.csv does not
# catch a bug any more, these are tried. `python -m penstock.sim.planted` finds new ones.
OTHER_SEEDS = range(40)


@seeds_of("cluster")
def test_rules_hold(
    seeds: Seeds, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    results = Results(tmp_path / "results.csv", "")
    with quiet():
        for seed in seeds:
            results.add_passed(run_cluster(seed))
    record_property("note", f"cluster simulation: {results}")
    assert results.numbers["seeds"] > results.numbers["uncounted"]


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


def test_every_planted_bug_is_caught_within_200_seeds() -> None:
    assert [plant.name for plant in PLANTS] == list(CAUGHT)
    assert all(0 <= caught.seed < CAUGHT_WITHIN_SEEDS for caught in CAUGHT.values())
    assert len(CAUGHT) >= 30


def test_a_failure_says_how_to_repeat_it() -> None:
    with (
        quiet(),
        acknowledged_before_replicated(),
        pytest.raises(InvariantViolated, match=r"python -m penstock.sim --cluster --seed 1$"),
    ):
        run_cluster(1)


def test_digests_do_not_depend_on_the_hash_seed_or_on_addresses() -> None:
    """Seeds give equal digests in two processes with different PYTHONHASHSEED and different memory
    allocators. Seed 21 once closed connections in the order of their addresses."""
    program = (
        "from penstock.sim.cluster.run import run_cluster\n"
        "from penstock.sim.harness import quiet\n"
        "with quiet():\n"
        f" for seed in {sorted({*range(COMPARED_SEEDS), 21})}:\n"
        "  print(seed, run_cluster(seed, with_transactions=seed % 2 == 1).digest)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONMALLOC": allocator},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, allocator in (("1", "pymalloc"), ("2", "malloc"))
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert first == second
    assert len(set(first.split()[1::2])) == len(first.splitlines()) >= COMPARED_SEEDS


def test_results_are_added_to_the_row_of_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    results = Results(path, "first")
    totals = {"topics deleted": 2, "damaged segment": 1}
    results.add_passed(Report("", 1.0, elections=2, truncations=1, acknowledged=5, totals=totals))
    results.add_passed(Report("", 1.0, elections=2, truncations=0, acknowledged=5))
    results.add_failed(77)
    results.save()
    Results(path, "second").save()
    continued = Results(path, "first")
    totals = {"topics deleted": 1}
    continued.add_passed(Report("", 1.0, elections=1, truncations=1, acknowledged=1, totals=totals))
    continued.save()
    assert path.read_text().splitlines() == [
        "kind,commit,seeds,uncounted,failed,elections,truncations,acknowledged,failing_seeds,totals",
        "cluster,first,2,1,1,3,2,6,77,damaged segment=1; topics deleted=3",
        "cluster,second,0,0,0,0,0,0,,",
    ]
