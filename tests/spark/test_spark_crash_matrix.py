"""The crash matrix of the exactly-once sink: a crash at each step of its protocol leaves each
result visible once, and no transaction open.

`make test-more` kills Python processes of the sink at each step, and real drivers of a cluster of
three brokers; `make test` proves that the check finds duplicates. PENSTOCK_DRILL=1 runs every row
three times and 30 random kills.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import running
from tests.spark.crash_check import CrashMatrixError
from tests.spark.crash_cluster import Brokers, TwoHosts
from tests.spark.crash_faults import Action
from tests.spark.crash_queries import crash_at_each, run_to_the_end
from tests.spark.crash_rows import (
    NO_TWO_PHASE,
    ROWS,
    driver_killed_at,
    past_the_timeout,
    random_kills,
)
from tests.spark.crash_source import STEPS
from tests.spark.crash_stream import ROWS_IN_BATCH, Stream

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = pytest.mark.xdist_group("spark")

DRILL = bool(os.environ.get("PENSTOCK_DRILL"))
ROUNDS = 3 if DRILL else 1
IN_TEST_MORE = ("decision in doubt", "decided with ends incomplete", "zombie driver")
Note = Callable[[str, object], None]


@pytest.fixture
def servers() -> Iterator[str]:
    with penstock.Cluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.more
def test_a_crash_at_each_step_leaves_each_result_once(
    servers: str, tmp_path: Path, record_property: Note
) -> None:
    with Stream(servers, tmp_path, "steps", replicas=1) as stream:
        record_property("note", f"crash matrix: {crash_at_each(stream, STEPS)}")


def test_at_least_once_delivery_fails_the_check(servers: str, tmp_path: Path) -> None:
    """The same crash and the same check: the drill finds duplicates where there are some."""
    with Stream(servers, tmp_path, "bites", replicas=1, delivery="at-least-once") as stream:
        stream.faults.arm("committed", Action.KILL)
        stream.produce(rows=ROWS_IN_BATCH)
        assert run_to_the_end(stream) == 1
        stream.check.wait_until_ended()
        results = stream.check.results(stream.expected)
    assert results.lost == []
    assert results.duplicates == sorted(stream.expected)


@pytest.mark.more
def test_a_query_resumes_after_its_transactional_ids_expired(tmp_path: Path) -> None:
    """A query that is stopped for longer than transactional.id.expiration.ms (7 days)."""
    expiring = {
        "transactional.id.expiration.ms": "20000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with (
        penstock.Cluster(expiring) as cluster,
        Stream(cluster.bootstrap_servers, tmp_path, "expired", replicas=1) as stream,
    ):
        for _run in range(2):
            stream.wait(
                lambda: not stream.check.transactional_ids(), "the expiry", alive=lambda: None
            )
            stream.produce(rows=ROWS_IN_BATCH)
            assert run_to_the_end(stream) == 0
            stream.check.wait_until_ended()
            stream.check.check(stream.expected)


@pytest.mark.more
@pytest.mark.parametrize("row", ROWS if DRILL else IN_TEST_MORE)
def test_a_row_of_the_crash_matrix(row: str, tmp_path: Path, record_property: Note) -> None:
    with running(PenstockCluster(tmp_path)) as cluster:
        summary = ROWS[row](Brokers(cluster), tmp_path / "stream", ROUNDS)
    record_property("note", f"{row}: {summary}")


@pytest.mark.more
def test_a_killed_driver_with_at_least_once_delivery_fails_the_check(tmp_path: Path) -> None:
    row = driver_killed_at("committed", is_open=False, delivery="at-least-once")
    with (
        running(PenstockCluster(tmp_path)) as cluster,
        pytest.raises(CrashMatrixError, match="results are duplicated"),
    ):
        row(Brokers(cluster), tmp_path / "stream", 1)


if DRILL:

    @pytest.mark.more
    def test_transactions_time_out_without_two_phase_commit(
        tmp_path: Path, record_property: Note
    ) -> None:
        with running(PenstockCluster(tmp_path, *NO_TWO_PHASE)) as cluster:
            summary = past_the_timeout(cluster.bootstrap, tmp_path / "stream", ROUNDS)
        record_property("note", f"past the timeout: {summary}")

    @pytest.mark.more
    @pytest.mark.parametrize(("rounds", "standalone"), [(20, False), (10, True)])
    def test_random_kills(
        rounds: int, standalone: bool, tmp_path: Path, record_property: Note
    ) -> None:
        with running(PenstockCluster(tmp_path)) as cluster:
            if standalone:
                with TwoHosts(tmp_path / "spark") as spark:
                    summary = random_kills(Brokers(cluster), tmp_path / "stream", rounds, spark)
            else:
                summary = random_kills(Brokers(cluster), tmp_path / "stream", rounds)
        record_property("note", f"random kills: {summary}")
