"""The kinds of runs, and how fresh seeds of them run in parallel processes."""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from penstock.sim.broker import run_broker
from penstock.sim.cluster.run import run_acls, run_cluster, run_reassignments, run_transactions
from penstock.sim.explore import EXPLORERS
from penstock.sim.explore.walk import Explorer, explore
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.log.run import run_log
from penstock.sim.quorum.run import run_quorum
from penstock.sim.results import RunReport


class Kind(NamedTuple):
    """`seeds` are run for each seed that is requested, `batch` of them in one go."""

    name: str
    run: Callable[[int], RunReport]
    seeds: int = 1
    batch: int = 1


class WalkReport(NamedTuple):
    counts: bool
    elections: int
    truncations: int
    acknowledged: int


class Outcome(NamedTuple):
    """A seed of a kind, and its report or the text of its failure."""

    kind: str
    seed: int
    report: RunReport | str


def _run_node_and_cluster(seed: int) -> RunReport:
    """Also runs a log store and a broker, which take little time."""
    run_log(seed)
    run_broker(seed)
    return run_cluster(seed)


def _run_walk(explorer: Explorer, seed: int) -> RunReport:
    counts = explore(explorer, seed)
    acknowledged = counts["committed"]
    return WalkReport(acknowledged > 0, counts["elections"], counts["truncations"], acknowledged)


CLUSTER = Kind("cluster", _run_node_and_cluster)
TRANSACTIONS = Kind("transactions", run_transactions)
REASSIGNMENTS = Kind("reassignments", run_reassignments)
ACLS = Kind("acls", run_acls)
QUORUM = Kind("quorum", run_quorum, seeds=7, batch=7)
# Names as --explore takes them.
WALKS = {
    name: Kind(f"explore {name}", partial(_run_walk, explorer), seeds=20, batch=20)
    for name, explorer in EXPLORERS.items()
}


def run_seed(kind: Kind, seed: int) -> Outcome:
    with quiet():
        try:
            return Outcome(kind.name, seed, kind.run(seed))
        except InvariantViolated as violation:
            return Outcome(kind.name, seed, str(violation))


def run_fresh_seeds(
    kinds: Sequence[Kind], seeds: dict[str, int], deadline: float | None, jobs: int
) -> Iterator[Outcome]:
    """Run fresh seeds of all kinds in parallel processes: until the deadline, or until so many of
    each kind count."""
    left = dict(seeds)
    with ProcessPoolExecutor(jobs, initializer=_collect_rarely) as pool:
        running: dict[Future[list[Outcome]], tuple[str, int]] = {}
        while True:
            under_way = dict.fromkeys(left, 0)
            for name, batch in running.values():
                under_way[name] += batch
            while len(running) < jobs:
                kind = _next_kind(kinds, left, under_way, deadline)
                if kind is None:
                    break
                future = pool.submit(_run_batch, kind, secrets.randbits(48))
                running[future] = (kind.name, kind.batch)
                under_way[kind.name] += kind.batch
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                del running[future]
                for outcome in future.result():
                    report = outcome.report
                    left[outcome.kind] -= isinstance(report, str) or report.counts
                    yield outcome


def _next_kind(
    kinds: Sequence[Kind], left: dict[str, int], under_way: dict[str, int], deadline: float | None
) -> Kind | None:
    """Return the kind that is furthest behind."""
    if deadline is not None:
        if time.monotonic() >= deadline:
            return None
        return max(kinds, key=lambda kind: (left[kind.name] - under_way[kind.name]) / kind.seeds)
    behind = [kind for kind in kinds if left[kind.name] > under_way[kind.name]]
    return max(
        behind,
        key=lambda kind: (left[kind.name] - under_way[kind.name]) / kind.seeds,
        default=None,
    )


def _collect_rarely() -> None:
    """Runs make millions of short-lived objects, few of them in cycles: looking for those takes a
    tenth of the time otherwise."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _run_batch(kind: Kind, seed: int) -> list[Outcome]:
    outcomes = [run_seed(kind, seed + number) for number in range(kind.batch)]
    gc.collect()  # otherwise finished runs stay in memory: 10 GB after 2,000 quorums
    return outcomes
