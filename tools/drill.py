"""Run the drills, tests that are too long for `make test`, and write docs/DRILLS.md.

    python -m tools.drill MINUTES [WORD ...]

With words, only the drills whose names contain one of them run.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "DRILLS.md"


HEAD = """# Drills

The last result of each drill. `make drill MINUTES=N` runs all, `make drill ONLY=word` some of them.

| drill | result | output | minutes | date | commit |
|---|---|---|---|---|---|"""


def main(minutes: int, *only: str) -> int:
    drills = {
        "simulation of logs, brokers, quorums and clusters; planted bugs; determinism": (
            {
                "PENSTOCK_SIM_SECONDS": str(60 * minutes),
                "PENSTOCK_DRILL": "1",
                "PENSTOCK_TWICE": "50",
            },
            ["tests/sim"],
        ),
        "kill -9 of a log's process and of a broker under load": (
            {"PENSTOCK_KILL_ROUNDS": str(20 * minutes)},
            ["tests/log/test_log_kill9.py", "tests/e2e/test_e2e_kill9.py"],
        ),
        "fuzzing of every decoder": (
            {"PENSTOCK_EXAMPLES": str(10 * minutes)},
            ["tests/protocol/test_protocol_fuzz.py"],
        ),
        "fuzzing before authentication: 100,000 mutated exchanges with a node": (
            {"PENSTOCK_FUZZ": "100000"},
            ["tests/security/test_fuzz_before_authentication.py"],
        ),
        "strangers of 18 kinds at once, and another client of the node": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/security/test_bad_input_before_authentication.py"],
        ),
        "loop delay during produce, a cold read of 5 GB, retention, recovery and compaction": (
            {"PENSTOCK_LOOP_DELAY_GB": "5"},
            [
                "tests/e2e/test_e2e_loop_delay.py",
                "tests/e2e/test_e2e_loop_delay_compaction.py",
                "tests/e2e/test_e2e_loop_delay_long_work.py",
            ],
        ),
        "loop delay through failover, catch-up by 5 GB and a reassignment": (
            {"PENSTOCK_LOOP_DELAY_GB": "5"},
            ["tests/e2e/test_e2e_loop_delay_cluster.py"],
        ),
        "3 brokers grow to 10, in simulation to 50, and shrink to 4; moves are interrupted": (
            {"PENSTOCK_GROW_AND_SHRINK": "1"},
            ["tests/e2e/test_e2e_grow_and_shrink.py", "tests/sim/test_sim_grow.py"],
        ),
        "siege: a client of a node under hostile clients of several kinds": (
            {"PENSTOCK_SIEGE": "1"},
            ["tests/e2e/test_e2e_siege.py"],
        ),
        "compaction: 100 times kill -9, and a million updates": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/e2e/test_e2e_compaction.py"],
        ),
        "exactly-once copy with confluent-kafka; brokers, coordinators and clients are killed": (
            {"PENSTOCK_EXACTLY_ONCE_S": str(60 * minutes)},
            ["tests/e2e/test_e2e_exactly_once.py"],
        ),
        "exactly-once copy with Java; brokers, coordinators and clients are killed": (
            {"PENSTOCK_EXACTLY_ONCE_S": str(60 * minutes)},
            ["tests/java/test_java_transactions_copy.py"],
        ),
        "kill -9 of Spark's driver and of the broker": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/spark/test_spark_restarts.py"],
        ),
        "crash matrix of Spark's exactly-once sink; drivers, workers and brokers are killed": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/spark/test_spark_crash_check.py", "tests/spark/test_spark_crash_matrix.py"],
        ),
        "Spark reads a topic of 5 GB": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/spark/test_spark_large_read.py"],
        ),
        "the payments pipeline on a Spark cluster that loses a worker": (
            {"PENSTOCK_DRILL": "1"},
            ["tests/spark/test_spark_standalone.py"],
        ),
    }
    selected = {
        name: drill for name, drill in drills.items() if any(word in name for word in only or ("",))
    }
    if not selected:
        sys.exit(
            f"no drill's name contains {' or '.join(only)}; the drills are:\n  "
            + "\n  ".join(drills)
        )
    rows, failed = _last_results(), False
    for name, (environment, tests) in selected.items():
        print(f"{name} …", flush=True)
        started = time.monotonic()
        # Spark uses all cores, and a loop delay must not include other tests.
        workers = (
            "0"
            if all(
                test.startswith(
                    (
                        "tests/spark/",
                        "tests/e2e/test_e2e_loop_delay",
                        "tests/e2e/test_e2e_siege",
                        "tests/security/test_bad_input",
                    )
                )
                for test in tests
            )
            else "2"
        )
        command = [sys.executable, "-m", "pytest", "-n", workers, *tests]
        run = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        notes = (
            run.stdout.partition("= notes =")[2].partition("\n")[2].splitlines()
            or run.stdout.splitlines()[-1:]
        )
        output = "; ".join(line for line in notes if line)
        failed |= run.returncode != 0
        if run.returncode:
            with tempfile.NamedTemporaryFile(
                "w", prefix="penstock-drill-", suffix=".log", delete=False
            ) as log:
                log.write(run.stdout)
            print(f"{run.stdout[-8_000:]}\nfailed; all of its output is in {log.name}")
        print(f"  {output}", flush=True)
        cells = (
            "failed" if run.returncode else "passed",
            output,
            f"{(time.monotonic() - started) / 60:.0f}",
            _today(),
            _commit(),
        )
        rows[name] = " | ".join(cells)
        RESULTS.write_text(
            "\n".join([HEAD, *(f"| {name} | {rest} |" for name, rest in rows.items()), ""])
        )
    return 1 if failed else 0


def _last_results() -> dict[str, str]:
    """Return the rows of docs/DRILLS.md, so that drills that do not run now keep theirs."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [
        line.strip("| ").partition(" | ")
        for line in lines
        if line.startswith("| ") and not line.startswith("| drill")
    ]
    return {name: rest for name, _bar, rest in rows}


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
