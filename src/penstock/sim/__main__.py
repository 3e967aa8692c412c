"""python -m penstock.sim [--cluster] [--seeds N | --seconds S | --seed X]: fresh seeds of a log, a
broker and a cluster (or of a cluster alone), or one seed again. Exits with 1 where an invariant
does not hold."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from penstock.sim.broker_run import run_broker
from penstock.sim.cluster.run import Report, run_cluster
from penstock.sim.log.model import Broken
from penstock.sim.log.run import run_log
from penstock.sim.quiet import quiet
from penstock.sim.results import Results

_SAVED_EVERY = 20


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    arguments.add_argument("--cluster", action="store_true", help="the cluster alone")
    arguments.add_argument(
        "--seeds",
        type=int,
        default=50,
        help="how many fresh seeds; with --results, how many the commit is to have",
    )
    arguments.add_argument("--seconds", type=float, help="as many fresh seeds as this time gives")
    arguments.add_argument("--seed", type=int, help="this seed alone")
    arguments.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many seeds at a time"
    )
    arguments.add_argument("--results", type=Path, help="a file in which the results are added up")
    arguments.add_argument("--commit", default="", help="what the results belong to")
    given = arguments.parse_args()
    if given.seed is not None:
        return _again(given.seed, cluster_alone=given.cluster)
    results = Results(given.results or Path(os.devnull), given.commit)
    done = results.numbers["seeds"] if given.results else 0
    deadline = time.monotonic() + given.seconds if given.seconds else None
    failed = 0
    for count, (seed, outcome) in enumerate(
        _outcomes(given.seeds - done, deadline, given.jobs, given.cluster), 1
    ):
        if isinstance(outcome, Report):
            results.passed(outcome)
        else:
            failed += 1
            results.failed(seed)
            print(outcome, file=sys.stderr)
        if count % _SAVED_EVERY == 0:
            print(results, flush=True)
            if given.results:
                results.save()
    if given.results:
        results.save()
    print(f"{given.commit or 'fresh seeds'}: {results}")
    return 1 if failed else 0


def _again(seed: int, *, cluster_alone: bool) -> int:
    try:
        if not cluster_alone:
            print(f"log: {run_log(seed)}")
            print(f"broker: {run_broker(seed)}")
        print(f"cluster: {run_cluster(seed)}")
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    return 0


def _outcomes(
    seeds: int, deadline: float | None, jobs: int, cluster_alone: bool
) -> Iterator[tuple[int, Report | str]]:
    """Seeds that do not count are not counted."""
    left = seeds
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[tuple[int, Report | str]]] = set()
        while running or (time.monotonic() < deadline if deadline is not None else left > 0):
            while len(running) < jobs and (
                time.monotonic() < deadline if deadline is not None else left > len(running)
            ):
                running.add(pool.submit(_run, secrets.randbits(48), cluster_alone))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                seed, outcome = future.result()
                left -= not isinstance(outcome, Report) or outcome.counts
                yield seed, outcome


def _run(seed: int, cluster_alone: bool) -> tuple[int, Report | str]:
    with quiet():
        try:
            if not cluster_alone:
                run_log(seed)
                run_broker(seed)
            return seed, run_cluster(seed)
        except Broken as broken:
            return seed, str(broken)


if __name__ == "__main__":
    sys.exit(main())
