"""make drill: what is too long for make test. Runs one drill after the other, and keeps what they said in docs/DRILLS.md."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "DRILLS.md"


def main(minutes: int) -> int:
    drills = {
        f"simulation of logs, a broker, quorums and clusters, {minutes} minutes each, every planted bug, 50 clusters twice": (
            {"PENSTOCK_SIM_SECONDS": str(60 * minutes), "PENSTOCK_PLANTED": "all", "PENSTOCK_DRILL": "1", "PENSTOCK_TWICE": "50"},
            ["tests/sim"],
        ),
        f"kill -9, {20 * minutes} rounds": (
            {"PENSTOCK_KILL_ROUNDS": str(20 * minutes)},
            ["tests/log/test_log_kill9.py", "tests/e2e/test_e2e_kill9.py"],
        ),
        f"fuzzing of every decoder, {10 * minutes} examples a version": (
            {"PENSTOCK_EXAMPLES": str(10 * minutes)},
            ["tests/protocol/test_protocol_fuzz.py"],
        ),
        "loop delay: produce, a cold read of 5 GB, retention, recovery; and during compaction": (
            {"PENSTOCK_LOOP_DELAY_GB": "5"},
            ["tests/e2e/test_e2e_loop_delay.py", "tests/e2e/test_e2e_loop_delay_compaction.py"],
        ),
        "100 kill -9 of compaction and a million updates": ({"PENSTOCK_DRILL": "1"}, ["tests/e2e/test_e2e_compaction.py"]),
        "kill -9 of Spark's driver at ten moments, and of the broker": ({"PENSTOCK_DRILL": "1"}, ["tests/spark/test_spark_restarts.py"]),
        "Spark reads a topic of 5 GB": ({"PENSTOCK_DRILL": "1"}, ["tests/spark/test_spark_large_read.py"]),
        "the payments pipeline on a Spark cluster that loses a worker": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/spark/test_spark_standalone.py"],
        ),
    }
    lines, failed = [], False
    for name, (environment, tests) in drills.items():
        print(f"{name} …", flush=True)
        started = time.monotonic()
        # Spark takes all cores by itself, and delays are those of one test alone.
        workers = "0" if all(one.startswith(("tests/spark/", "tests/e2e/test_e2e_loop_delay")) for one in tests) else "2"
        command = [sys.executable, "-m", "pytest", "-n", workers, *tests]
        run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        said = run.stdout.partition("= notes =")[2].partition("\n")[2].splitlines() or run.stdout.splitlines()[-1:]
        outcome = "; ".join(line for line in said if line)
        failed |= run.returncode != 0
        if run.returncode:
            print(run.stdout[-8_000:])
        print(f"  {outcome}", flush=True)
        lines.append(f"| {name} | {'failed' if run.returncode else 'passed'} | {outcome} | {(time.monotonic() - started) / 60:.0f} |")
    today = datetime.datetime.now(datetime.UTC).date()
    head = f"# Drills\n\nThe last run of `make drill MINUTES={minutes}`, {today}, Python {sys.version.split()[0]}.\n"
    RESULTS.write_text("\n".join([head, "| drill | outcome | what it said | minutes |", "|---|---|---|---|", *lines, ""]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
