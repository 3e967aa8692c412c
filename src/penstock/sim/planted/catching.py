"""Finds seeds that catch planted bugs, and keeps them in a CSV file."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.sim.cluster.run import run_cluster, run_reassignments, run_transactions
from penstock.sim.explore.raft import RAFT, VOTERS
from penstock.sim.explore.replica import REPLICA
from penstock.sim.explore.shard import SHARD
from penstock.sim.explore.txn import TXN
from penstock.sim.explore.walk import explore
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.log.run import run_log
from penstock.sim.planted import PLANTED, PlantedBug
from penstock.sim.planted.explore import PLANTED_RAFT, PLANTED_REPLICA, PLANTED_SHARD, PLANTED_TXN
from penstock.sim.planted.log import PLANTED_STORE
from penstock.sim.planted.membership import PLANTED_MEMBERSHIP, PLANTED_VOTERS
from penstock.sim.planted.reassignments import PLANTED_REASSIGNMENTS
from penstock.sim.planted.transactions import PLANTED_TRANSACTIONS
from penstock.sim.quorum.run import run_quorum

# Every bug is caught within so many seeds, which begin with 0.
CAUGHT_WITHIN_SEEDS = 200


class Plant(NamedTuple):
    """A bug, and the kind of run that catches it: `run` runs one seed."""

    bug: PlantedBug
    kind: str
    run: Callable[[int], object]

    @property
    def name(self) -> str:
        return self.bug.__name__


class Caught(NamedTuple):
    """Which seed caught a bug, after how many seconds, and what was violated."""

    bug: str
    kind: str
    seed: int
    seconds: float
    violation: str


def _plants() -> Iterator[Plant]:
    for bug in PLANTED:
        yield Plant(bug, "cluster", run_cluster)
    for bug in PLANTED_TRANSACTIONS:
        yield Plant(bug, "transactions", run_transactions)
    for bug in PLANTED_REASSIGNMENTS:
        yield Plant(bug, "reassignments", run_reassignments)
    for bug in PLANTED_MEMBERSHIP:
        yield Plant(bug, "quorum", run_quorum)
    for bug in PLANTED_STORE:
        yield Plant(bug, "log", run_log)
    walks = (
        (RAFT, PLANTED_RAFT),
        (VOTERS, PLANTED_VOTERS),
        (REPLICA, PLANTED_REPLICA),
        (SHARD, PLANTED_SHARD),
        (TXN, PLANTED_TXN),
    )
    for explorer, bugs in walks:
        for bug in bugs:
            if bug not in (*PLANTED, *PLANTED_TRANSACTIONS, *PLANTED_MEMBERSHIP):
                yield Plant(bug, f"explore {explorer.name}", partial(explore, explorer))


# A bug that both cluster runs and explorers catch is listed once.
PLANTS: tuple[Plant, ...] = tuple(_plants())


def find_seed(plant: Plant, seeds: Iterable[int]) -> Caught | None:
    """Return the first of these seeds that catches a bug, or None."""
    started = time.perf_counter()
    for seed in seeds:
        violation = run_planted(plant, seed)
        if violation is not None:
            seconds = time.perf_counter() - started
            return Caught(plant.name, plant.kind, seed, round(seconds, 1), violation)
    return None


def run_planted(plant: Plant, seed: int) -> str | None:
    """Run one seed with a bug. Return what it violates, or None if it is not caught."""
    try:
        with quiet(), plant.bug():
            plant.run(seed)
    except InvariantViolated as violation:
        return str(violation).splitlines()[0]
    return None


def read_caught(path: Path) -> dict[str, Caught]:
    """Return the rows of a file by bug."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            row["bug"]: Caught(
                row["bug"], row["kind"], int(row["seed"]), float(row["seconds"]), row["violation"]
            )
            for row in csv.DictReader(file)
        }


def write_caught(path: Path, caught: Iterable[Caught]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Caught._fields)
        writer.writerows(caught)
