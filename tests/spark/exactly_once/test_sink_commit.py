"""The commit of the exactly-once sink, with a crash before each of its steps."""

from __future__ import annotations

import pytest

from penstock.client.client import Client
from penstock.ids import TopicPartition
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.sink import commit
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import PreparedTransaction, SinkError
from penstock.spark.sink.exactly_once import prepared_of
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.transactions import DRIVER_TIMEOUT_MS, LONG_DRIVER_TIMEOUT_MS, driver_id
from tests.spark.exactly_once.brokers import timeout_ms
from tests.spark.exactly_once.sink import Sink, large, small


@pytest.mark.parametrize("values", [small("a"), large("a")], ids=["small", "large"])
def test_all_written_but_undecided(sink: Sink, values: list[str]) -> None:
    lease = sink.lease()
    sink.write(lease, 0, values)
    sink.batch(0, values)
    assert sink.settled(values)


@pytest.mark.parametrize("step", ["check_prepared", "write_decision", "decide"])
def test_driver_dies_before_the_decision(sink: Sink, step: str) -> None:
    lease = sink.lease()
    sink.commit_until(step, 0, sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b")))
    assert sink.visible() == []
    sink.batch(0, large("a"), small("b"))
    assert sink.settled([*large("a"), "b"])


@pytest.mark.parametrize("step", ["end_listed", "abort_unlisted", "clear_list"])
def test_driver_dies_after_the_decision(sink: Sink, step: str) -> None:
    lease = sink.lease()
    sink.commit_until(step, 0, sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b")))
    lease = sink.lease()
    assert sink.settled([*large("a"), "b"])
    # Spark repeats the batch, perhaps with other rows in each task.
    repeated = sink.write(lease, 0, [*large("a"), "b"]), sink.write(lease, 0, [])
    assert [(result.drained, result.inline, result.prepared) for result in repeated] == [
        (True, (), None)
    ] * 2
    sink.commit(0, *repeated)
    sink.batch(1, small("c"))
    assert sink.settled([*large("a"), "b", "c"])


def test_repeated_ends_are_done(sink: Sink) -> None:
    lease = sink.lease()
    first, second = (sink.write(lease, 0, large(name)) for name in ("a", "b"))

    async def end(client: Client) -> None:
        committer = Committer(client, sink.options, lease)
        await committer.end_listed(prepared_of([first]))
        await committer.abort_unlisted(prepared_of([second]))

    for _time in range(3):
        sink.call(end)
    assert sink.settled(large("a"))
    listed = prepared_of([second])
    with pytest.raises(SinkError, match="came too late"):
        sink.call(lambda client: Committer(client, sink.options, lease).end_listed(listed))


def test_many_inline_rows_have_a_longer_timeout(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_LONG_BYTES", 0)
    timeouts: list[int] = []
    for batch_id in range(2):
        lease = sink.lease()
        results = sink.write(lease, batch_id, small("a")), sink.write(lease, batch_id, large("b"))
        driver = PreparedTransaction(driver_id(sink.name), lease.producer)
        timeouts.append(timeout_ms(sink, driver))
        sink.commit_until("decide", batch_id, *results)
        timeouts.append(timeout_ms(sink, driver))
        # The epoch is not the lease's any more, so an abort proves nothing.
        sink.abort(batch_id, *results)
        sink.batch(batch_id, small("a"), large("b"))
    assert timeouts == [DRIVER_TIMEOUT_MS, LONG_DRIVER_TIMEOUT_MS] * 2
    assert sink.settled([*large("b"), "a"] * 2)


def test_many_inline_rows_of_a_zombie_are_not_written(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_LONG_BYTES", 0)
    written = sink.write(sink.lease(), 0, small("a"))
    lease = sink.lease()
    with pytest.raises(SinkError, match="came too late"):
        sink.commit(0, written)
    sink.commit(0, sink.write(lease, 0, small("a")))
    assert sink.settled(["a"])


def test_rows_are_written_before_the_decision(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open transaction of a driver that died there stalls no other sink."""
    sent: list[str] = []
    send, flush = BatchSender.send, BatchSender.flush

    async def record_send(sender: BatchSender, partition: TopicPartition, batch: bytes) -> None:
        sent.append(partition.topic)
        await send(sender, partition, batch)

    async def record_flush(sender: BatchSender) -> None:
        await flush(sender)
        sent.append("flush")

    written = sink.write(sink.lease(), 0, small("a"))
    monkeypatch.setattr(BatchSender, "send", record_send)
    monkeypatch.setattr(BatchSender, "flush", record_flush)
    sink.commit(0, written)
    assert sent == [sink.topic, "flush", DECISION_TOPIC, "flush"]
