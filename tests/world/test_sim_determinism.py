"""A seed gives the same run in another process with another PYTHONHASHSEED."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SEEDS = 50
WORKLOAD = Path(__file__).with_name("sim_workload.py")


def start(hash_seed: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.Popen(
        [sys.executable, str(WORKLOAD), str(SEEDS)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    runs = [start("1"), start("12345")]
    first, second = ([line.split() for line in run.communicate()[0].splitlines()] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert len(first) == SEEDS
    assert first == second
    assert len({digest for _, _, digest in first}) == SEEDS, "every seed is a different run"
    assert all(int(events) > 100 for _, events, _ in first), "every run has events"
