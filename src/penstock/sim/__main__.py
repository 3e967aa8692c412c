"""python -m penstock.sim [--cluster | --transactions | --reassignments | --acls | --quorum
                         | --explore] [--seeds N | --seconds S | --seed X]

Runs fresh seeds of clusters, of clusters with transactional clients, of clusters whose partitions
move between brokers, of clusters with access control, of quorums and of the explorers, or of one of
these kinds, or repeats one seed. Exits with status 1 if a rule of docs/INVARIANTS.md does not
hold.

For each cluster seed, which also runs a log store and a broker, there is one with transactions, one
with reassignments, one with access control, and several quorum seeds and walks of each explorer;
with one kind, --seeds is the number of its seeds.

When a fresh seed fails: fix the bug, then add the seed to REGRESSIONS in tests/sim/seeds.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.sim.results import Results
from penstock.sim.runs import (
    ACLS,
    CLUSTER,
    QUORUM,
    REASSIGNMENTS,
    TRANSACTIONS,
    WALKS,
    Kind,
    run_fresh_seeds,
    run_seed,
)

_SAVE_EVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--cluster", action="store_true", help="run clusters only")
    only.add_argument(
        "--transactions", action="store_true", help="run clusters with transactional clients only"
    )
    only.add_argument(
        "--reassignments",
        action="store_true",
        help="run clusters whose partitions move between brokers only",
    )
    only.add_argument("--acls", action="store_true", help="run clusters with access control only")
    only.add_argument("--quorum", action="store_true", help="run quorums only")
    only.add_argument(
        "--explore", nargs="?", const="", choices=("", *WALKS), help="run explorers, or one, only"
    )
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
    parser.add_argument("--commit", default="", help="the rows of the CSV file")
    options = parser.parse_args()
    kinds = _kinds(options)
    if options.seed is not None:
        return _repeat(kinds, options.seed)
    return _run_fresh(kinds, options)


def _kinds(options: argparse.Namespace) -> tuple[Kind, ...]:
    if options.cluster:
        return (CLUSTER,)
    if options.transactions:
        return (TRANSACTIONS,)
    if options.reassignments:
        return (REASSIGNMENTS,)
    if options.acls:
        return (ACLS,)
    if options.quorum:
        return (QUORUM,)
    if options.explore is not None:
        return (WALKS[options.explore],) if options.explore else tuple(WALKS.values())
    return (CLUSTER, TRANSACTIONS, REASSIGNMENTS, ACLS, QUORUM, *WALKS.values())


def _repeat(kinds: Sequence[Kind], seed: int) -> int:
    for kind in kinds:
        _kind, _seed, report = run_seed(kind, seed)
        if isinstance(report, str):
            print(report, file=sys.stderr)
            return 1
        print(f"{kind.name}: {report}")
    return 0


def _run_fresh(kinds: Sequence[Kind], options: argparse.Namespace) -> int:
    path = options.results or Path(os.devnull)
    results = {kind.name: Results(path, options.commit, kind.name) for kind in kinds}
    is_mixed = len(kinds) > 1 and CLUSTER in kinds
    seeds = {
        kind.name: options.seeds * (kind.seeds if is_mixed else 1)
        - (results[kind.name].numbers["seeds"] if options.results else 0)
        for kind in kinds
    }
    deadline = time.monotonic() + options.seconds if options.seconds else None
    failed, saved_at = 0, time.monotonic()
    for kind, seed, report in run_fresh_seeds(kinds, seeds, deadline, options.jobs):
        if isinstance(report, str):
            failed += 1
            results[kind].add_failed(seed)
            print(report, file=sys.stderr)
        else:
            results[kind].add_passed(report)
        if time.monotonic() > saved_at + _SAVE_EVERY_S:
            saved_at = time.monotonic()
            _save(results, options)
    _save(results, options)
    return 1 if failed else 0


def _save(results: dict[str, Results], options: argparse.Namespace) -> None:
    for kind, row in results.items():
        print(f"{options.commit or 'fresh seeds'}, {kind}: {row}", flush=True)
        if options.results:
            row.save()


if __name__ == "__main__":
    sys.exit(main())
