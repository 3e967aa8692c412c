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
from penstock.sim.planted import PLANTED, PlantedBug
from penstock.sim.planted.cluster import (
    acknowledged_before_replicated,
    high_watermark_of_the_proposed_isr,
)
from penstock.sim.planted.groups import commits_answered_before_they_are_committed
from penstock.sim.results import Results
from tests.sim.seeds import Seeds, seeds_of

# Seeds whose digests are compared between two processes. `make drill` compares fifty.
COMPARED_SEEDS = int(os.environ.get("PENSTOCK_TWICE", "6"))
# `make test` plants a few bugs, `make drill` all of them.
QUICK_BUGS = (
    acknowledged_before_replicated,
    high_watermark_of_the_proposed_isr,
    commits_answered_before_they_are_committed,
)
BUGS = PLANTED if os.environ.get("PENSTOCK_PLANTED") == "all" else QUICK_BUGS
CAUGHT_WITHIN_SEEDS = 300


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


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(
    plant: PlantedBug, record_property: Callable[[str, object], None]
) -> None:
    with quiet(), plant(), pytest.raises(InvariantViolated) as caught:
        for seed in range(CAUGHT_WITHIN_SEEDS):
            run_cluster(seed)
    record_property("note", f"planted, {plant.__name__}: {str(caught.value).splitlines()[0]}")


def test_a_failure_says_how_to_repeat_it() -> None:
    with (
        quiet(),
        acknowledged_before_replicated(),
        pytest.raises(InvariantViolated, match=r"python -m penstock.sim --cluster --seed 1$"),
    ):
        run_cluster(1)


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    """Seeds give equal digests in two processes with different PYTHONHASHSEED."""
    program = (
        "from penstock.sim.cluster.run import run_cluster\n"
        "from penstock.sim.harness import quiet\n"
        "with quiet():\n"
        f" for seed in range({COMPARED_SEEDS}): print(seed, run_cluster(seed).digest)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert first == second
    assert len(set(first.split()[1::2])) == COMPARED_SEEDS


def test_results_are_added_to_the_row_of_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    results = Results(path, "first")
    results.add_passed(Report("", 1.0, elections=2, truncations=1, acknowledged=5))
    results.add_passed(Report("", 1.0, elections=2, truncations=0, acknowledged=5))
    results.add_failed(77)
    results.save()
    Results(path, "second").save()
    continued = Results(path, "first")
    continued.add_passed(Report("", 1.0, elections=1, truncations=1, acknowledged=1))
    continued.save()
    assert path.read_text().splitlines() == [
        "kind,commit,seeds,uncounted,failed,elections,truncations,acknowledged,failing_seeds",
        "cluster,first,2,1,1,3,2,6,77",
        "cluster,second,0,0,0,0,0,0,",
    ]
