"""Fixtures of the tests of Kafka's command line tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

import penstock
from tests.cli.kafka_tool import Result, Tool


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    def call(run: Callable[[Sequence[str]], int], *words: str) -> Result:
        try:
            code = run(words)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
