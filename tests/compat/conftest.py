"""The broker of the client tests: a Penstock process, or PENSTOCK_COMPAT_BOOTSTRAP=host:port."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.penstock_process import PenstockProcess, running


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("PENSTOCK_COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    with running(PenstockProcess(tmp_path_factory.mktemp("compat"), port=0)) as process:
        yield process.bootstrap
