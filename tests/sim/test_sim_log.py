"""Log stores in simulation: torn and lost writes, power loss, bit flips, failing and full disks
(rules 1, 6, 20, 21, 22, 23)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from penstock.log import flush, truncation
from penstock.sim.harness import InvariantViolated, quiet
from penstock.sim.log.run import run_log
from penstock.sim.planted import PlantedBug
from penstock.sim.planted.log import (
    aborted_transactions_are_not_synced,
    deleted_logs_leave_their_offsets,
)
from penstock.world import Disk, File
from tests.sim.seeds import Seeds, seeds_of


@seeds_of("log")
def test_rules_hold(seeds: Seeds) -> None:
    with quiet():
        for seed in seeds:
            run_log(seed)


def without_fdatasync(
    disk: Disk, directory: str, files: list[File], directories: list[str]
) -> None:
    del directory, files
    for path in directories:
        disk.sync_dir(path)


def without_sync_dir(disk: Disk, directory: str, files: list[File], directories: list[str]) -> None:
    del directories
    true_sync_log(disk, directory, files, [])


true_sync_log = flush.sync_log


@pytest.mark.parametrize("broken_sync", [without_fdatasync, without_sync_dir])
def test_a_missing_sync_is_caught(
    broken_sync: Callable[[Disk, str, list[File], list[str]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (flush, truncation):
        monkeypatch.setattr(module, "sync_log", broken_sync)
    with quiet(), pytest.raises(InvariantViolated):
        for seed in range(100):
            run_log(seed)


@pytest.mark.parametrize(
    ("bug", "seed", "violation"),
    [
        (deleted_logs_leave_their_offsets, 3, "the checkpoint lists the high watermark"),
        (aborted_transactions_are_not_synced, 8, "the indexes have the aborted transactions"),
    ],
)
def test_a_planted_bug_is_caught(bug: PlantedBug, seed: int, violation: str) -> None:
    with quiet(), bug(), pytest.raises(InvariantViolated, match=violation):
        run_log(seed)


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    """Fifty seeds give equal digests in two processes with different PYTHONHASHSEED."""
    program = (
        "from penstock.sim.log.run import run_log\n"
        "for seed in range(50): print(seed, run_log(seed))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    digests = outputs[0].split()[1::2]
    assert len(set(digests)) == 50
