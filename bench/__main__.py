"""python -m bench [NAME ...]: run benchmarks and write their tables to bench/RESULTS.md."""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

import penstock

BENCHMARKS = {
    "log": ["bench.log", "bench.codec"],
    "broker": ["bench.broker"],
    "cluster": ["bench.cluster"],
    "crowd": ["bench.crowd"],
    "curves": ["bench.curves"],
    "groups": ["bench.groups"],
    "many": ["bench.many"],
    "metrics": ["bench.metrics"],
    "quotas": ["bench.quotas"],
    "spark": ["bench.spark"],
    "tls": ["bench.tls"],
    "transactions": ["bench.transactions"],
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"unknown benchmark {', '.join(unknown)}: give one of {', '.join(BENCHMARKS)}",
            file=sys.stderr,
        )
        return 2
    # pip compiles modules when it installs them; compilation must not be part of a start time.
    compileall.compile_dir(Path(penstock.__file__).parent, quiet=1)
    for name in names or BENCHMARKS:
        for module in BENCHMARKS[name]:
            importlib.import_module(module).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
