"""Each scenario runs on real sockets (uvloop) and on simulated ones."""

from __future__ import annotations

import pytest

from penstock.world.real import run
from tests.world.both_worlds import Play, play_simulated


@pytest.fixture(params=["real", "sim"])
def play(request: pytest.FixtureRequest) -> Play:
    return run if request.param == "real" else play_simulated
