"""Clusters with transactional clients in simulation: the rules hold, runs are reproducible, and
planted bugs are caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.sim.cluster.run import run_cluster, run_transactions
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.planted.catching import PLANTS, Plant, find_seed, read_caught
from penstock.sim.planted.transactions import (
    PLANTED_TRANSACTIONS,
    committed_reads_reach_the_high_watermark,
)
from penstock.sim.results import Results
from tests.sim.seeds import Seeds, seeds_of

# `python -m penstock.sim.planted` plants all bugs, and writes docs/PLANTED.csv.
QUICK_BUGS = (
    "timed_out_producers_are_not_fenced",
    "late_markers_end_the_next_transaction",
    "transactional_retries_are_appended_again",
)
CAUGHT = read_caught(Path(__file__).parents[2] / "docs" / "PLANTED.csv")
# If the seed of docs/PLANTED.csv does not catch a bug any more, these are tried.
OTHER_SEEDS = range(40)


@seeds_of("transactions")
def test_rules_hold(
    seeds: Seeds, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    results = Results(tmp_path / "results.csv", "", "transactions")
    with quiet():
        for seed in seeds:
            results.add_passed(run_transactions(seed))
    record_property("note", f"simulation of transactions: {results}")
    assert results.numbers["seeds"] > results.numbers["uncounted"]
    assert results.totals["transactions committed"] > results.numbers["seeds"]


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


def test_at_least_ten_bugs_are_planted_in_transactions() -> None:
    assert len(PLANTED_TRANSACTIONS) >= 10
    assert {bug.__name__ for bug in PLANTED_TRANSACTIONS} <= set(CAUGHT)


def test_a_seed_gives_the_same_run_twice_and_another_one_without_transactions() -> None:
    with quiet():
        digests = [run_transactions(2).digest, run_transactions(2).digest, run_cluster(2).digest]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_failure_says_how_to_repeat_it() -> None:
    with (
        quiet(),
        committed_reads_reach_the_high_watermark(),
        pytest.raises(InvariantViolated, match=r"python -m penstock.sim --transactions --seed 1$"),
    ):
        run_transactions(1)
