"""One lab for all fires of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fire.cluster import FireError
from tests.fire.lab import Lab, check_tools


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    try:
        check_tools()
    except FireError as error:
        pytest.skip(f"this machine cannot run fires: {error}")
    lab = Lab(tmp_path_factory.mktemp("fire"))
    try:
        yield lab
    finally:
        lab.close()
