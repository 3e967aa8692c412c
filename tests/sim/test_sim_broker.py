"""One broker in simulation, under a client's load, killed and cut from power (invariants 1, 3, 4,
5, 6, 25)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable

import pytest

from penstock.log import flush
from penstock.log.flush import sync_log
from penstock.sim.broker_run import run_broker
from penstock.sim.log.model import Broken
from penstock.sim.quiet import quiet
from penstock.world import Disk, File

# Its share of the five minutes that all simulation has in `make test`.
SECONDS = float(os.environ.get("PENSTOCK_SIM_SECONDS", "30"))


def test_fresh_seeds_of_a_broker(record_property: Callable[[str, object], None]) -> None:
    deadline = time.monotonic() + SECONDS
    count = 0
    with quiet():
        while time.monotonic() < deadline:
            run_broker(secrets.randbits(48))
            count += 1
    record_property("note", f"broker simulation: {count} fresh seeds in {SECONDS:.0f} s")
    assert count > 0


def without_fdatasync(
    disk: Disk, directory: str, files: list[File], directories: list[str]
) -> None:
    del files
    sync_log(disk, directory, [], directories)


def test_a_missing_sync_is_noticed_by_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "sync_log", without_fdatasync)
    with quiet(), pytest.raises(Broken):
        for seed in range(100):
            run_broker(seed)


def test_one_seed_is_one_run() -> None:
    with quiet():
        assert run_broker(7) == run_broker(7)
        assert run_broker(7) != run_broker(8)
