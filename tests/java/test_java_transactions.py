"""Transactions with Apache Kafka's Java client: Penstock and Apache Kafka show it the same.

With every transaction.version, on one broker and on three. Run by `make test-java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import PenstockProcess, running
from tests.java.kafka_node import KafkaNode
from tests.java.transaction_transcript import (
    QUICK_TIMEOUTS,
    set_transaction_version,
    transcript,
)

pytestmark = pytest.mark.java

VERSIONS = (2, 1, 0)
SETTING = f"{QUICK_TIMEOUTS}=200"
# Returns the transcripts of one transaction.version, by scenario.
Transcripts = Callable[[int], dict[str, str]]


def transcripts_of(bootstrap: str) -> Transcripts:
    """Run the program once per version."""
    known: dict[int, dict[str, str]] = {}

    def of_version(version: int) -> dict[str, str]:
        if version not in known:
            set_transaction_version(bootstrap, version)
            known[version] = transcript(bootstrap)
        return known[version]

    return of_version


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcripts]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), {QUICK_TIMEOUTS: "200"})
    try:
        node.start()
        yield transcripts_of(node.bootstrap)
    finally:
        node.kill()


@pytest.fixture(scope="module", params=[1, 3], ids=["one-broker", "three-brokers"])
def penstocks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transcripts]:
    directory = tmp_path_factory.mktemp("penstock")
    if request.param == 1:
        with running(PenstockProcess(directory, SETTING)) as process:
            yield transcripts_of(process.bootstrap)
    else:
        with running(PenstockCluster(directory, SETTING)) as cluster:
            yield transcripts_of(cluster.bootstrap)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_java_client_sees_the_same_as_with_apache_kafka(
    kafkas: Transcripts, penstocks: Transcripts, version: int
) -> None:
    expected, seen = kafkas(version), penstocks(version)
    different = {
        name: f"Kafka:\n{expected[name]}Penstock:\n{seen.get(name)}"
        for name in expected
        if seen.get(name) != expected[name]
    }
    assert not different, "\n".join(f"{name}\n{text}" for name, text in different.items())
    assert len(expected) > 10


def test_committed_aborted_and_open_transactions_are_read_as_expected(
    kafkas: Transcripts,
) -> None:
    """A transcript by hand, so that the comparison is not of two empty ones."""
    assert kafkas(2)["abort"].splitlines()[-2:] == [
        "read_committed: {0=[2 value 1, 6 value 3, 10 value 5], "
        "1=[2 value 1, 6 value 3, 10 value 5]} to {0=12, 1=12}",
        "read_uncommitted: {0=[0 value 0, 2 value 1, 4 value 2, 6 value 3, 8 value 4, "
        "10 value 5], 1=[0 value 0, 2 value 1, 4 value 2, 6 value 3, 8 value 4, 10 value 5]} "
        "to {0=12, 1=12}",
    ]
