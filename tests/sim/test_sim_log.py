"""Logs in simulation: torn and lost writes, power loss, bit flips, failing and full disks
(invariants 1, 6, 20, 21, 22, 23)."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from penstock.log import flush, truncation
from penstock.sim.log.model import Broken
from penstock.sim.log.run import run_log
from penstock.sim.quiet import quiet
from penstock.world import Disk, File

SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "30"))


def test_fresh_seeds(record_property: Callable[[str, object], None]) -> None:
    deadline = time.monotonic() + SECONDS
    count = 0
    with quiet():
        while time.monotonic() < deadline:
            run_log(secrets.randbits(48))
            count += 1
    record_property("note", f"log simulation: {count} fresh seeds in {SECONDS:.0f} s")
    assert count > 0


def without_fdatasync(
    disk: Disk, directory: str, files: list[File], directories: list[str]
) -> None:
    del directory, files
    for path in directories:
        disk.sync_dir(path)


def without_sync_of_names(
    disk: Disk, directory: str, files: list[File], directories: list[str]
) -> None:
    del directories
    true_sync_log(disk, directory, files, [])


true_sync_log = flush.sync_log


@pytest.mark.parametrize("broken", [without_fdatasync, without_sync_of_names])
def test_a_missing_sync_is_noticed(
    broken: Callable[[Disk, str, list[File], list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (flush, truncation):
        monkeypatch.setattr(room, "sync_log", broken)
    with quiet(), pytest.raises(Broken):
        for seed in range(100):
            run_log(seed)


def test_fifty_seeds_give_the_same_trace_twice() -> None:
    """Under different hash seeds, in different processes."""
    program = (
        "from penstock.sim.log.run import run_log\nfor seed in range(50): print(seed, "
        "run_log(seed))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    digests = runs[0].split()[1::2]
    assert len(set(digests)) == 50
