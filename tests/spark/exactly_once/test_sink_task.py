"""Tasks of the exactly-once sink that fail, or that lose against a twin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.limits import SPARK_INLINE_BYTES
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision, SinkError
from penstock.spark.sink.task import TaskWriter, max_inline_bytes
from tests.spark.exactly_once.sink import QUERY, Sink, large, rows, small


def test_failed_task_aborts_its_transaction(sink: Sink) -> None:
    lease = sink.lease()

    def fail() -> Iterator[object]:
        # Each is more than Spark's batches are gathered to.
        for _batch in range(2):
            yield from rows(large("a") * 11)
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        TaskWriter(sink.options, lease, QUERY, 0).write(fail())
    assert sink.settled([])


def test_rows_beyond_the_inline_limit_are_prepared(sink: Sink) -> None:
    lease = sink.lease()
    values = ["a" * 100, "b" * 100]
    results = [
        TaskWriter(sink.options, lease, QUERY, 0, limit).write(rows([value]))
        for limit, value in zip((1000, 100), values, strict=True)
    ]
    assert [result.prepared is None for result in results] == [True, False]
    sink.commit(0, *results)
    assert sink.settled(values)


def test_commit_messages_of_many_tasks_fit_into_a_result_of_spark() -> None:
    """spark.driver.maxResultSize is 1 GiB by default, and counts what the messages add."""
    assert max_inline_bytes(0) == SPARK_INLINE_BYTES
    assert sum(map(max_inline_bytes, range(100_000))) < 700 * 1024**2


def test_lost_twin_is_aborted_with_the_commit(sink: Sink) -> None:
    lease = sink.lease()
    winner = sink.write(lease, 0, large("a"))
    loser = sink.write_elsewhere(lease, 0, large("a"))
    assert loser.prepared != winner.prepared
    sink.commit(0, winner)
    assert sink.settled(large("a"))


def test_zombie_task_aborts_itself(sink: Sink) -> None:
    zombie = sink.lease()
    lease = sink.lease()
    with pytest.raises(SinkError, match="task of batch 0 came too late"):
        sink.write_elsewhere(zombie, 0, large("a"))
    sink.commit(0, sink.write(lease, 0, small("a")))
    assert sink.settled(["a"])


def test_lost_attempt_is_aborted_with_an_inline_commit(sink: Sink) -> None:
    lease = sink.lease()
    sink.write_elsewhere(lease, 0, large("a"))
    sink.commit(0, sink.write(lease, 0, small("a")))
    assert sink.settled(["a"])


@pytest.mark.parametrize("step", ["decide", "end_listed", "abort_unlisted"])
def test_twin_that_begins_during_the_commit_aborts_itself(sink: Sink, step: str) -> None:
    lease = sink.lease()
    winner = sink.write(lease, 0, large("a"))
    sink.commit_until(step, 0, winner)
    with pytest.raises(SinkError, match="came too late"):
        sink.write_elsewhere(lease, 0, large("a"))
    assert winner.prepared is not None
    assert {*sink.open_transactions()} <= {
        f"{sink.name}/driver",
        winner.prepared.transactional_id,
    }
    sink.batch(0, large("a"))
    assert sink.settled(large("a"))


def test_twin_that_began_before_the_decision_is_aborted(sink: Sink) -> None:
    """The commit looks for open transactions after the driver's transaction was begun."""
    lease = sink.lease()
    winner = sink.write(lease, 0, small("a"))

    async def run_commit(client: Client) -> None:
        committer = Committer(client, sink.options, lease)
        write_decision = committer.write_decision

        async def late(*arguments: Any) -> None:
            await asyncio.to_thread(sink.write_elsewhere, lease, 0, large("a"))
            await write_decision(*arguments)

        committer.write_decision = late  # type: ignore[assignment, method-assign]
        await committer.commit([winner], Decision(QUERY, 0))

    sink.call(run_commit)
    assert sink.settled(["a"])
