"""python -m penstock.sim [--cluster] [--seeds N | --seconds S | --seed X]

Runs fresh seeds of a log store, a broker and a cluster (with --cluster, of a cluster only), or
repeats one seed. Exits with status 1 if a rule of docs/INVARIANTS.md does not hold.

When a fresh seed fails: fix the bug, then add the seed to REGRESSIONS in tests/sim/seeds.py.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from penstock.sim.broker import run_broker
from penstock.sim.cluster.run import Report, run_cluster
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.log.run import run_log
from penstock.sim.results import Results

_SAVE_EVERY = 20

# A seed, and its report or the text of its failure.
Outcome = tuple[int, Report | str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="run clusters only")
    parser.add_argument(
        "--seeds",
        type=int,
        default=50,
        help="number of fresh seeds; with --results, the number that the commit shall reach",
    )
    parser.add_argument("--seconds", type=float, help="run fresh seeds for this long")
    parser.add_argument("--seed", type=int, help="repeat this seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs")
    parser.add_argument("--results", type=Path, help="CSV file in which results are added up")
    parser.add_argument("--commit", default="", help="the row of the CSV file")
    options = parser.parse_args()
    if options.seed is not None:
        return _repeat(options.seed, cluster_only=options.cluster)
    results = Results(options.results or Path(os.devnull), options.commit)
    done = results.numbers["seeds"] if options.results else 0
    deadline = time.monotonic() + options.seconds if options.seconds else None
    failed = 0
    outcomes = _run_seeds(options.seeds - done, deadline, options.jobs, options.cluster)
    for count, (seed, outcome) in enumerate(outcomes, 1):
        if isinstance(outcome, Report):
            results.add_passed(outcome)
        else:
            failed += 1
            results.add_failed(seed)
            print(outcome, file=sys.stderr)
        if count % _SAVE_EVERY == 0:
            print(results, flush=True)
            if options.results:
                results.save()
    if options.results:
        results.save()
    print(f"{options.commit or 'fresh seeds'}: {results}")
    return 1 if failed else 0


def _repeat(seed: int, *, cluster_only: bool) -> int:
    try:
        if not cluster_only:
            print(f"log: {run_log(seed)}")
            print(f"broker: {run_broker(seed)}")
        print(f"cluster: {run_cluster(seed)}")
    except InvariantViolated as violation:
        print(violation, file=sys.stderr)
        return 1
    return 0


def _run_seeds(
    seeds: int, deadline: float | None, jobs: int, cluster_only: bool
) -> Iterator[Outcome]:
    """Run fresh seeds in parallel processes until the deadline, or until `seeds` of them count."""
    left = seeds
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while running or (time.monotonic() < deadline if deadline is not None else left > 0):
            while len(running) < jobs and (
                time.monotonic() < deadline if deadline is not None else left > len(running)
            ):
                running.add(pool.submit(_run_seed, secrets.randbits(48), cluster_only))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                seed, outcome = future.result()
                left -= not isinstance(outcome, Report) or outcome.counts
                yield seed, outcome


def _run_seed(seed: int, cluster_only: bool) -> Outcome:
    with quiet():
        try:
            if not cluster_only:
                run_log(seed)
                run_broker(seed)
            return seed, run_cluster(seed)
        except InvariantViolated as violation:
            return seed, str(violation)


if __name__ == "__main__":
    sys.exit(main())
