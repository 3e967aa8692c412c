"""python -m penstock.sim [--seeds N | --seconds S | --seed X]: fresh seeds, or one again. Exits with 1 where an invariant does not hold."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from penstock.sim.broker_run import run_broker
from penstock.sim.log_model import Broken
from penstock.sim.log_run import run_log
from penstock.sim.quiet import quiet

RUNS = (run_log, run_broker)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    arguments.add_argument("--seeds", type=int, default=50, help="how many fresh seeds")
    arguments.add_argument("--seconds", type=float, help="as many fresh seeds as this time gives")
    arguments.add_argument("--seed", type=int, help="this seed alone")
    given = arguments.parse_args()
    if given.seed is not None:
        for run in RUNS:
            print(f"{run.__name__}: {run(given.seed)}")
        return 0
    deadline = time.monotonic() + given.seconds if given.seconds else None
    count, failed = 0, 0
    with quiet():
        while time.monotonic() < deadline if deadline is not None else count < given.seeds:
            seed = secrets.randbits(48)
            try:
                for run in RUNS:
                    run(seed)
            except Broken as broken:
                failed += 1
                print(broken, file=sys.stderr)
            count += 1
            if count % 100 == 0:
                print(f"{count} seeds, {failed} failed", flush=True)
    print(f"a log and a broker: {count} fresh seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
