"""python -m bench [NAME ...]: runs benchmarks and keeps their tables in bench/RESULTS.md."""

from __future__ import annotations

import compileall
import importlib
import sys
from pathlib import Path

import penstock

# What there is to measure.
BENCHMARKS = {
    "log": ["bench.log", "bench.codec"],
    "broker": ["bench.broker"],
    "cluster": ["bench.cluster"],
    "groups": ["bench.groups"],
    "spark": ["bench.spark"],
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"there is no benchmark {', '.join(unknown)} yet; there are: {', '.join(BENCHMARKS)}",
            file=sys.stderr,
        )
        return 2
    # As pip does when it installs: a start should not be measured with the compiling of every
    # module in it.
    compileall.compile_dir(Path(penstock.__file__).parent, quiet=1)
    for name in names or BENCHMARKS:
        for module in BENCHMARKS[name]:
            importlib.import_module(module).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
