"""One broker for the tests of bad input: a Penstock process, or the broker that
PENSTOCK_COMPAT_BOOTSTRAP=host:port names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.penstock_process import PenstockProcess, running
from tests.e2e.raw_connection import RawConnection, metadata


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess | None]:
    """The Penstock process, or None for an external broker."""
    if os.environ.get("PENSTOCK_COMPAT_BOOTSTRAP"):
        yield None
        return
    with running(PenstockProcess(tmp_path_factory.mktemp("e2e"))) as process:
        yield process


@pytest.fixture(scope="session")
def bootstrap(broker: PenstockProcess | None) -> str:
    return os.environ["PENSTOCK_COMPAT_BOOTSTRAP"] if broker is None else broker.bootstrap


@pytest.fixture
def bystander(bootstrap: str) -> Iterator[RawConnection]:
    """Another client, which gets responses before and after the test, and may send requests
    during it."""
    with RawConnection(bootstrap) as connection:
        assert metadata(connection).brokers
        yield connection
        assert metadata(connection).brokers


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as raw:
        yield raw
