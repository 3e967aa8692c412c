"""Micro-batches of the exactly-once sink on a broker, without a crash, and batch writes with
txnAppId and txnVersion."""

from __future__ import annotations

import pyarrow as pa

from penstock.client.client import Client
from penstock.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import sink_options
from penstock.spark.sink.decision import Decision, PreparedTransaction
from penstock.spark.sink.exactly_once import ExactlyOnceBatchWriter
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.task import TaskWriter
from penstock.spark.sink.transactions import SinkTransactions
from tests.spark.exactly_once.brokers import run, timeout_ms
from tests.spark.exactly_once.sink import QUERY, Sink, large, rows, small

NO_TIMEOUT_MS = 2**31 - 1


def test_small_tasks_are_one_transaction(sink: Sink) -> None:
    lease = sink.lease()
    results = [sink.write(lease, 0, small("a", "b")), sink.write(lease, 0, small("c"))]
    assert [result.prepared for result in results] == [None, None]
    assert sink.visible() == []
    assert sink.open_transactions() == []
    sink.commit(0, *results)
    assert sink.settled(["a", "b", "c"])
    assert sink.decision() == Decision(QUERY, 0)


def test_large_tasks_are_prepared_without_a_timeout(sink: Sink) -> None:
    lease = sink.lease()
    results = [sink.write(lease, 0, large(name)) for name in ("a", "b")]
    results.append(sink.write(lease, 0, small("c")))
    assert [len(result.inline) for result in results] == [0, 0, 1]
    assert len(sink.open_transactions()) == 2
    assert [timeout_ms(sink, result.prepared) for result in results[:2]] == [NO_TIMEOUT_MS] * 2
    assert sink.visible() == []
    sink.commit(0, *results)
    assert sink.settled([*large("a"), *large("b"), "c"])
    # The commit clears the list, and then the same ids are used again.
    assert sink.decision() == Decision(QUERY, 0)
    lease = sink.lease()
    assert sink.decision() == lease.decided == Decision(QUERY, 0)
    again = sink.write(lease, 1, large("d"))
    assert again.prepared is not None
    assert results[0].prepared is not None
    assert again.prepared.transactional_id == results[0].prepared.transactional_id
    sink.commit(1, again)
    assert sink.settled([*large("a"), *large("b"), "c", *large("d")])


def test_tasks_without_rows(sink: Sink) -> None:
    sink.batch(0, [], [])
    sink.batch(1, ["a"], [])
    assert sink.settled(["a"])
    assert sink.decision() == Decision(QUERY, 1)


def test_two_sinks_at_once(servers: str, sink: Sink) -> None:
    other = Sink(servers, f"{sink.name}-other", sink.topic)
    first, second = sink.lease(), other.lease()
    written = sink.write(first, 0, large("a")), other.write(second, 0, large("b"))
    sink.commit(0, written[0])
    # The other sink's transaction is still open, and holds readers back.
    assert other.open_transactions() != []
    assert sink.open_transactions() == []
    other.commit(0, written[1])
    assert sink.settled([*large("a"), *large("b")])
    # A name that begins with another one is another sink.
    assert sink.lease().decided == other.lease().decided == Decision(QUERY, 0)


def test_transactions_of_other_applications_are_left_alone(sink: Sink) -> None:
    """Their ids begin with the name of the sink, but are not those of its tasks."""
    other = Sink(sink.servers, f"{sink.name}-other", sink.topic)
    foreign = f"{sink.name}/payments-service"

    async def begin(client: Client) -> PreparedTransaction:
        transactions = SinkTransactions(client, sink.name, 10)
        prepared = await transactions.init_task(foreign)
        sender = BatchSender(client, sink.options, prepared.producer, foreign)
        batch = build_batch(
            [(None, b"x", (), 1)],
            producer_id=prepared.producer.id,
            producer_epoch=prepared.producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        await sender.send(TopicPartition(other.topic, 0), batch)
        await sender.flush()
        await sender.close()
        return prepared

    begun = sink.call(begin)
    sink.batch(0, small("a"))
    assert sink.open_transactions() == [foreign]
    sink.call(lambda client: SinkTransactions(client, sink.name, 10).commit_all([begun]))
    assert sink.settled(["x", "a"])


def test_partition_that_was_added_is_found(sink: Sink) -> None:
    sink.batch(0, small("a"))
    with BlockingClient(sink.options.connection) as other:
        other.call(lambda client: client.admin.create_partitions(sink.topic, 4))
    row = pa.record_batch(
        [pa.array(["b"]), pa.array([3], pa.int32())], names=["value", "partition"]
    )
    written = TaskWriter(sink.options, sink.lease(), QUERY, 1).write(iter([row]))
    assert [rows.partition.partition for rows in written.inline] == [3]


def test_versions_of_batch_writes(servers: str, sink: Sink) -> None:
    def write(version: int, values: list[str]) -> None:
        options = sink_options(
            {
                "kafka.bootstrap.servers": servers,
                "topic": sink.topic,
                "txnAppId": sink.name,
                "txnVersion": str(version),
            }
        )
        writer = ExactlyOnceBatchWriter(options)
        writer.take_lease()
        writer.commit([writer.write(rows(values))])

    for version in (3, 3, 2, 4, 4):
        write(version, [f"{version}"])
    assert sink.settled(["3", "4"])


def test_long_names_of_batch_writes(servers: str) -> None:
    topic = "long-".ljust(240, "t")
    sink = Sink(servers, "unused", topic)
    sink.create_topic()
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "txnVersion": "1"}
    writer = ExactlyOnceBatchWriter(sink_options({**options, "txnAppId": "orders-pipeline"}))
    writer.take_lease()
    writer.commit([writer.write(rows(["a"]))])
    assert sink.settled(["a"])
    name = f"orders-pipeline:{topic}"
    assert "0 committed" in run("transactions", "end", name, "--yes", "--bootstrap-server", servers)
