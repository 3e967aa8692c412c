"""A broker with each transaction.version, and a new sink for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from tests.spark.exactly_once.brokers import new_sink, set_transaction_version
from tests.spark.exactly_once.sink import Sink


@pytest.fixture(scope="module", params=["transaction.version 2", "transaction.version 1"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with penstock.Cluster() as cluster:
        if request.param.endswith("1"):
            set_transaction_version(cluster.bootstrap_servers, 1)
        yield cluster.bootstrap_servers


@pytest.fixture
def sink(servers: str) -> Sink:
    return new_sink(servers)
