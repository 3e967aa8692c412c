"""The check of the crash matrix finds a duplicate, a lost result and an open transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

import penstock
from tests.spark.crash_check import CrashCheck, CrashMatrixError
from tests.spark.crash_faults import Action, Faults, InjectedFault
from tests.spark.live import create_topics

TOPIC = "results"
EXPECTED = Counter(range(10))


@pytest.fixture
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        create_topics(cluster.bootstrap_servers, 3, TOPIC)
        yield cluster.bootstrap_servers


def transaction(servers: str, numbers: Sequence[int]) -> Producer:
    """Return a producer with these numbers in its open transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "sink/1/2"})
    producer.init_transactions(10)
    producer.begin_transaction()
    for number in numbers:
        producer.produce(TOPIC, key=str(number), value=b"", partition=number % 3)
    assert producer.flush(10) == 0
    return producer


def run_check(servers: str) -> None:
    check = CrashCheck(servers, TOPIC)
    check.wait_until_ended(patience_s=1.0)
    check.check(EXPECTED)


def test_each_result_once_passes(servers: str) -> None:
    transaction(servers, [3, 4, 4]).abort_transaction(10)
    transaction(servers, range(10)).commit_transaction(10)
    run_check(servers)


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([*range(10), 7], r"1 results are duplicated: 7 \(2 times, not 1\)"),
        ([*range(10), 12], r"1 results are duplicated: 12 \(1 times, not 0\)"),
        (range(9), r"1 results are lost: 9 \(0 times, not 1\)"),
    ],
)
def test_a_wrong_result_is_found(servers: str, numbers: Sequence[int], problem: str) -> None:
    transaction(servers, numbers).commit_transaction(10)
    with pytest.raises(CrashMatrixError, match=problem):
        run_check(servers)


def test_an_open_transaction_is_found(servers: str) -> None:
    transaction(servers, range(10)).commit_transaction(10)
    left = transaction(servers, [8])
    with pytest.raises(CrashMatrixError, match=r"sink/1/2 is .*results-2 is stable up to"):
        run_check(servers)
    left.abort_transaction(10)
    run_check(servers)


def test_what_a_reader_saw_and_is_gone_is_found(servers: str) -> None:
    transaction(servers, range(10)).commit_transaction(10)
    check = CrashCheck(servers, TOPIC)
    check.wait_for_results(EXPECTED, alive=lambda: None)
    check.check(EXPECTED)
    assert check._observer is not None
    check._observer.seen[10] += 1
    with pytest.raises(CrashMatrixError, match="10"):
        check.check(EXPECTED)
    check.close()


def test_an_armed_step_fires_once(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    faults.reach("commit")
    faults.arm("commit", Action.FAIL)
    assert faults.reached_by("commit") is None
    with pytest.raises(InjectedFault):
        faults.reach("commit")
    assert faults.reached_by("commit") is not None
    faults.reach("commit")
