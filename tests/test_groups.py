"""Parallel workers keep the tests of a group together."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker")
def test_the_tests_of_a_group_run_in_one_worker(request: pytest.FixtureRequest) -> None:
    """pytest-xdist groups tests by this end of their names. With pytest 9.2 it does not set it, and
    tests that share a cluster, or need the machine for themselves, run at the same time."""
    assert request.node.nodeid.endswith("@together")
