"""Whole clusters in simulation: fresh seeds, the same run twice, and bugs planted to be found."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.cluster.run import Report, run_cluster
from penstock.sim.log.model import Broken
from penstock.sim.planted import (
    PLANTED,
    Planted,
    acknowledged_before_replicated,
    watermark_over_the_proposed_isr,
)
from penstock.sim.planted_groups import commits_answered_before_they_are_committed
from penstock.sim.quiet import quiet
from penstock.sim.results import Results

# Its share of the five minutes that simulation has in `make test`.
SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "200"))
# Seeds that are run twice under different hash seeds; `make drill` runs fifty.
TWICE = int(os.environ.get("PENSTOCK_TWICE", "10"))
# `make drill` plants every bug.
FEW = (
    acknowledged_before_replicated,
    watermark_over_the_proposed_isr,
    commits_answered_before_they_are_committed,
)
CHOSEN = PLANTED if os.environ.get("PENSTOCK_PLANTED") == "all" else FEW
CAUGHT_WITHIN_SEEDS = 300


def test_fresh_seeds_of_a_cluster(
    record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    deadline = time.monotonic() + SECONDS
    results = Results(tmp_path / "results.csv", "")
    with quiet():
        while time.monotonic() < deadline:
            results.passed(run_cluster(secrets.randbits(48)))
    record_property("note", f"cluster simulation, {SECONDS:.0f} s: {results}")
    assert results.numbers["seeds"] > 0


@pytest.mark.parametrize("plant", CHOSEN, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(
    plant: Planted, record_property: Callable[[str, object], None]
) -> None:
    with quiet(), plant(), pytest.raises(Broken) as caught:
        for seed in range(CAUGHT_WITHIN_SEEDS):
            run_cluster(seed)
    record_property("note", f"planted, {plant.__name__}: {str(caught.value).splitlines()[0]}")


def test_a_failure_says_how_to_see_it_again() -> None:
    with (
        quiet(),
        acknowledged_before_replicated(),
        pytest.raises(Broken, match=r"python -m penstock.sim --cluster --seed 1$"),
    ):
        run_cluster(1)


def test_clusters_give_the_same_trace_twice() -> None:
    """Under different hash seeds, in different processes."""
    program = (
        "from penstock.sim.cluster.run import run_cluster\nfrom penstock.sim.quiet import quiet\n"
        f"with quiet():\n for seed in range({TWICE}): print(seed, run_cluster(seed).digest)"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": number},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in ("1", "2")
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert first == second
    assert len(set(first.split()[1::2])) == TWICE


def test_results_add_up_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    results = Results(path, "one")
    results.passed(Report("", 1.0, elections=2, truncations=1, acknowledged=5))
    results.passed(Report("", 1.0, elections=2, truncations=0, acknowledged=5))
    results.failed(77)
    results.save()
    Results(path, "two").save()
    again = Results(path, "one")
    again.passed(Report("", 1.0, elections=1, truncations=1, acknowledged=1))
    again.save()
    assert path.read_text().splitlines() == [
        "commit,seeds,uncounted,failed,elections,truncations,acknowledged,failing_seeds",
        "one,2,1,1,3,2,6,77",
        "two,0,0,0,0,0,0,",
    ]
