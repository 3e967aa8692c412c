"""One broker in simulation, under a client's load, killed and cut from power (rules 1, 3, 4, 5, 6,
25)."""

from __future__ import annotations

import pytest

from penstock.log import flush
from penstock.log.flush import sync_log
from penstock.sim.broker import run_broker
from penstock.sim.harness import InvariantViolated, quiet
from penstock.world import Disk, File
from tests.sim.seeds import Seeds, seeds_of


@seeds_of("broker")
def test_rules_hold(seeds: Seeds) -> None:
    with quiet():
        for seed in seeds:
            run_broker(seed)


def without_fdatasync(
    disk: Disk, directory: str, files: list[File], directories: list[str]
) -> None:
    del files
    sync_log(disk, directory, [], directories)


def test_a_missing_fdatasync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "sync_log", without_fdatasync)
    with quiet(), pytest.raises(InvariantViolated):
        for seed in range(100):
            run_broker(seed)


def test_a_seed_repeats_its_run() -> None:
    with quiet():
        assert run_broker(7) == run_broker(7)
        assert run_broker(7) != run_broker(8)
