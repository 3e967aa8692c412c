"""Simulated seeds per core-minute of two commits, in one run:
`python -m bench.sim_speed BASE [--kind KIND] [--other COMMIT] [--seeds N]`.

Each commit runs in a process of its own, and the two run the same seeds in turn. CPU time of the
process is measured: other work on the machine makes it longer, but for both. The digests of the
traces, and the totals of what happened in the runs, show whether both did the same. Nothing is
saved.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from statistics import median

# Reads seeds and prints for each its CPU time and what happened. It uses only names that both
# commits have.
_CHILD = """
import gc, sys, time
from penstock.sim.cluster.run import run_cluster, run_transactions
from penstock.sim.harness import quiet
from penstock.sim.quorum.run import run_quorum

run = {"quorum": run_quorum, "cluster": run_cluster, "transactions": run_transactions}[sys.argv[1]]
for line in sys.stdin:
    with quiet():
        started = time.process_time()
        report = run(int(line))
        gc.collect()
        taken = time.process_time() - started
    print(report.digest, taken, report.elections, report.truncations, report.acknowledged)
    sys.stdout.flush()
"""
_KINDS = ("quorum", "cluster", "transactions")
_COLUMNS = ("CPU s", "elections", "truncations", "acknowledged")


class Child:
    """A process that runs the seeds of one commit."""

    def __init__(self, source: Path, kind: str) -> None:
        self.digests: list[str] = []
        self.rows: list[list[float]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, kind],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, seed: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"seed {seed} failed")
        digest, *values = line.split()
        self.digests.append(digest)
        self.rows.append([float(value) for value in values])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def checkout(commit: str | None) -> Iterator[Path]:
    """Give the sources of a commit, or of the working tree."""
    root = Path(__file__).resolve().parent.parent
    if commit is None:
        yield root / "src"
        return
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=root, check=True, stdout=subprocess.PIPE
    ).stdout
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(directory, filter="data")
        yield Path(directory) / "src"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sim_speed", description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--other", help="the commit to measure; the working tree by default")
    parser.add_argument("--kind", choices=_KINDS, default="cluster")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    options = parser.parse_args()
    with ExitStack() as stack:
        children = {
            name: Child(stack.enter_context(checkout(commit)), options.kind)
            for name, commit in (("base", options.base), ("other", options.other))
        }
        for seed in range(options.first, options.first + options.seeds):
            for child in children.values():
                child.run(seed)
        for child in children.values():
            child.close()
    print(f"| {options.kind} | seeds per core-minute | " + " | ".join(_COLUMNS) + " |")
    rates = {}
    for name, child in children.items():
        sums = [sum(column) for column in zip(*child.rows, strict=True)]
        rates[name] = 60 * len(child.rows) / sums[0]
        totals = " | ".join(f"{total:,.0f}" for total in sums)
        print(f"| {name} | {rates[name]:.1f} | {totals} |")
    pairs = zip(children["base"].rows, children["other"].rows, strict=True)
    by_seed = median(base[0] / other[0] for base, other in pairs)
    print(f"ratio {rates['other'] / rates['base']:.2f} (median by seed {by_seed:.2f})")
    digests = list(zip(children["base"].digests, children["other"].digests, strict=True))
    same = sum(base == other for base, other in digests)
    print(f"{same} of {len(digests)} seeds have the same trace")


if __name__ == "__main__":
    main()
