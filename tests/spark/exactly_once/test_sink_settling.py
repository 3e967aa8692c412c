"""The exactly-once sink without two-phase commit, where transactions time out, and the command that
ends the transactions of an abandoned sink."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import penstock
from penstock.client.client import Client
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision, SinkError
from penstock.spark.sink.exactly_once import prepared_of
from penstock.spark.sink.task import TaskResult
from tests.spark.exactly_once.brokers import new_sink, run, timeout_ms
from tests.spark.exactly_once.sink import QUERY, Sink, large, small


@pytest.fixture
def plain_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster without two-phase commit, as Apache Kafka is by default."""
    settings = {
        "transaction.two.phase.commit.enable": "false",
        "transaction.max.timeout.ms": str(request.param),
    }
    with penstock.Cluster(settings) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("plain_servers", [70_000], indirect=True)
def test_without_two_phase_commit_the_longest_timeout_is_used(plain_servers: str) -> None:
    sink = new_sink(plain_servers)
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    assert timeout_ms(sink, written.prepared) == 70_000
    sink.commit(0, written)
    assert sink.settled(large("a"))


@pytest.mark.parametrize("plain_servers", [30_000], indirect=True)
def test_batch_that_may_time_out_is_not_decided(plain_servers: str) -> None:
    sink = new_sink(plain_servers)
    written = sink.write(sink.lease(), 0, large("a"))
    with pytest.raises(SinkError, match=r"times out in \d+ s.* raise transaction.max.timeout.ms"):
        sink.commit(0, written)
    sink.abort(0, written)
    assert sink.settled([])
    # Rows that travel inline need no time.
    sink.batch(0, small("a"))
    assert sink.settled(["a"])


@pytest.mark.parametrize("plain_servers", [1_000], indirect=True)
def test_timeout_before_and_after_the_decision(plain_servers: str) -> None:
    sink = new_sink(plain_servers)
    written = sink.write(sink.lease(), 0, large("a"))
    wait_until_closed(sink)
    with pytest.raises(SinkError, match="was ended before its batch was committed"):
        sink.commit(0, written)
    assert sink.settled([])

    lost = sink.write(sink.lease(), 0, large("a"))
    decide(sink, lost)
    wait_until_closed(sink)
    with pytest.raises(SinkError, match=f"rows of sink {sink.name} are lost"):
        sink.lease()
    command = ("transactions", "end", "--yes", sink.name, "--bootstrap-server", plain_servers)
    assert "are lost" in run(*command, code=1)
    assert run(*command, "--accept-loss") == f"Sink {sink.name}: 0 committed, 0 aborted, 1 lost."
    sink.batch(1, small("b"))
    assert sink.settled(["b"])


def test_end_of_an_abandoned_sink(servers: str, sink: Sink) -> None:
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.write_elsewhere(lease, 0, large("b"))
    decide(sink, written)
    command = ("transactions", "end", "--yes", sink.name, "--bootstrap-server", servers)
    assert run(*command) == f"Sink {sink.name}: 1 committed, 1 aborted."
    assert sink.settled(large("a"))
    assert run(*command) == f"Sink {sink.name}: 0 committed, 0 aborted."
    # The query may come back.
    assert sink.write(sink.lease(), 0, large("a")).drained


def test_end_of_an_unknown_sink(servers: str) -> None:
    command = ("transactions", "end", "--yes", "--bootstrap-server", servers)
    assert "there are no transactions of a sink nobody" in run(*command, "nobody", code=1)
    assert "without a slash" in run(*command, "a/b", code=1)


def decide(sink: Sink, *results: TaskResult) -> None:
    """Decide a batch whatever time its transactions have left, and end none of them."""

    async def steps(client: Client) -> None:
        committer = Committer(client, sink.options, results[0].lease)
        await committer.write_decision(results, Decision(QUERY, 0, None, prepared_of(results)))
        await committer.decide()

    sink.call(steps)


def wait_until_closed(sink: Sink) -> None:
    deadline = time.monotonic() + 30
    while sink.open_transactions():
        assert time.monotonic() < deadline
        time.sleep(0.05)
