"""Fixtures that run a test in the real world and in the simulated one: `disk` with `base`, and
`play`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.world import Disk
from penstock.world.real import RealDisk, run
from penstock.world.sim import SimDisk, SimDrive
from tests.world.both_worlds import Play, play_simulated


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return (
        RealDisk()
        if request.param == "real"
        else SimDisk(SimDrive(random.Random(1), lambda: 1_700_000_000_000))
    )


@pytest.fixture
def base(disk: Disk, tmp_path: Path) -> str:
    """A directory that exists on the disk under test."""
    disk.make_dirs(str(tmp_path))
    return str(tmp_path)


@pytest.fixture(params=["real", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    """Return a function that runs a scenario in a world."""
    return run if request.param == "real" else play_simulated
