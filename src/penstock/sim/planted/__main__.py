"""python -m penstock.sim.planted [--file docs/PLANTED.csv] [--jobs N] [BUG ...]

Plants each bug and runs seeds until one catches it, the seed in the file first. Writes the seed,
the time until the bug was caught and the violation of each bug to the file. Exits with status 1 if
a bug is not caught within 200 seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from penstock.sim.planted.catching import (
    CAUGHT_WITHIN_SEEDS,
    PLANTS,
    Caught,
    find_seed,
    read_caught,
    write_caught,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim.planted", description=__doc__)
    parser.add_argument("--file", type=Path, default=Path("docs/PLANTED.csv"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("bugs", nargs="*", help="names of bugs; all if there are none")
    options = parser.parse_args()
    names = options.bugs or [plant.name for plant in PLANTS]
    known = read_caught(options.file)
    missed = []
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {pool.submit(_find, name, known.get(name)): name for name in names}
        for future in as_completed(running):
            name, caught = running[future], future.result()
            if caught is None:
                missed.append(name)
                print(f"{name}: NOT caught within {CAUGHT_WITHIN_SEEDS} seeds", flush=True)
                continue
            known[name] = caught
            order = [plant.name for plant in PLANTS]
            rows = sorted(
                (row for row in known.values() if row.bug in order),
                key=lambda row: order.index(row.bug),
            )
            write_caught(options.file, rows)
            print(f"{name}: seed {caught.seed}, {caught.seconds} s: {caught.violation}", flush=True)
    return 1 if missed else 0


def _find(name: str, known: Caught | None) -> Caught | None:
    plant = next(plant for plant in PLANTS if plant.name == name)
    first = [] if known is None else [known.seed]
    return find_seed(plant, [*first, *range(CAUGHT_WITHIN_SEEDS)])


if __name__ == "__main__":
    sys.exit(main())
