"""The protocol of the exactly-once sink on a broker, step by step, with a crash after each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.kafka import features
from penstock.client.admin.admin_client import AdminClient
from penstock.client.client import Client
from penstock.client.offsets import LATEST
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import sink_options, source_options
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.shared_client import close_shared_clients
from penstock.spark.sink import commit, decision_log
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision, PreparedTransaction, SinkError
from penstock.spark.sink.exactly_once import ExactlyOnceBatchWriter, prepared_of
from penstock.spark.sink.lease import Lease, LeaseTaker
from penstock.spark.sink.sender import BatchSender
from penstock.spark.sink.task import TaskResult, TaskWriter
from penstock.spark.sink.transactions import (
    DRIVER_TIMEOUT_MS,
    LONG_DRIVER_TIMEOUT_MS,
    SinkTransactions,
    driver_id,
)
from penstock.spark.source.subscription import SubscribedTopics
from tests.spark.exactly_once_sink import QUERY, Sink, large, rows, small

NO_TIMEOUT_MS = 2**31 - 1
_numbers = count()


@pytest.fixture(scope="module", params=["transaction.version 2", "transaction.version 1"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with penstock.Cluster() as cluster:
        if request.param.endswith("1"):
            set_transaction_version(cluster.bootstrap_servers, 1)
        yield cluster.bootstrap_servers


def set_transaction_version(servers: str, version: int) -> None:
    """Change the version if it is another one. Clients learn it when they connect."""
    words = (
        "upgrade" if version == 2 else "downgrade",
        "--feature",
        f"transaction.version={version}",
    )
    assert features.run(["--bootstrap-server", servers, *words]) == 0
    close_shared_clients()


@pytest.fixture
def sink(servers: str) -> Sink:
    return new_sink(servers)


def new_sink(servers: str, **options: str) -> Sink:
    number = next(_numbers)
    sink = Sink(servers, f"sink-{number}", f"topic-{number}", **options)
    sink.create_topic()
    return sink


def timeout_ms(sink: Sink, transaction: PreparedTransaction | None) -> int:
    assert transaction is not None
    name = transaction.transactional_id
    described = sink.call(lambda client: client.admin.describe_transaction(name))
    return described.timeout_ms


# Without a crash


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


def test_no_pattern_subscribes_to_decisions(servers: str, sink: Sink) -> None:
    sink.batch(0, small("a"))
    options = source_options(
        {"kafka.bootstrap.servers": servers, "subscribePattern": ".*"}, streaming=False
    )
    subscribed = SubscribedTopics(options.subscription, 0)
    topics = {
        topic.name
        for topic in sink.call(lambda client: subscribed.topics(client, allow_missing=False))
    }
    assert sink.topic in topics
    assert DECISION_TOPIC not in topics


# Crashes


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


@pytest.mark.parametrize("values", [small("a"), large("a")], ids=["small", "large"])
def test_zombie_driver_cannot_decide(sink: Sink, values: list[str]) -> None:
    zombie = sink.lease()
    written = sink.write(zombie, 0, values)
    lease = sink.lease()
    with pytest.raises(SinkError):
        sink.commit(0, written)
    sink.abort(0, written)
    sink.commit(0, sink.write(lease, 0, values))
    assert sink.settled(values)


@pytest.mark.parametrize("step", ["fence", "list_open"])
def test_planner_that_was_overtaken_aborts_nothing(sink: Sink, step: str) -> None:
    """The later lease may have decided the transactions that the planner sees."""
    later: list[TaskResult] = []

    async def overtaken(client: Client) -> Lease:
        taker = LeaseTaker(client, sink.options, sink.name)
        run = getattr(taker, step)

        async def overtake() -> object:
            done = await run() if step == "fence" else None
            lease = await LeaseTaker(client, sink.options, sink.name).take()
            # Tasks run in another process.
            later.append(await asyncio.to_thread(sink.write_elsewhere, lease, 0, large("a")))
            return done if step == "fence" else await run()

        setattr(taker, step, overtake)
        return await taker.take()

    with pytest.raises(SinkError, match="has taken over the sink"):
        sink.call(overtaken)
    assert len(sink.open_transactions()) == 1
    sink.commit(0, *later)
    assert sink.settled(large("a"))


def test_planner_that_was_overtaken_does_not_claim_a_loss(sink: Sink) -> None:
    """The later lease has committed the list, and its tasks use the ids again."""
    written = sink.write(sink.lease(), 0, large("a"))
    sink.commit_until("end_listed", 0, written)
    later: list[TaskResult] = []

    async def overtaken(client: Client) -> Lease:
        taker = LeaseTaker(client, sink.options, sink.name)
        read = taker.read_decision

        async def overtake() -> Decision | None:
            decided = await read()
            lease = await LeaseTaker(client, sink.options, sink.name).take()
            later.append(await asyncio.to_thread(sink.write, lease, 1, large("b")))
            return decided

        taker.read_decision = overtake  # type: ignore[method-assign]
        return await taker.take()

    with pytest.raises(SinkError, match="has taken over the sink"):
        sink.call(overtaken)
    sink.commit(1, *later)
    assert sink.settled([*large("a"), *large("b")])


def test_late_end_of_a_listed_transaction_does_not_end_a_later_one(sink: Sink) -> None:
    zombie = sink.lease()
    written = sink.write(zombie, 0, large("a"))
    sink.commit_until("end_listed", 0, written)
    lease = sink.lease()
    later = sink.write(lease, 1, large("b"))
    assert written.prepared is not None
    assert later.prepared is not None
    assert written.prepared.transactional_id == later.prepared.transactional_id
    listed = prepared_of([written])
    with pytest.raises(SinkError, match="came too late"):
        sink.call(lambda client: Committer(client, sink.options, zombie).end_listed(listed))
    sink.call(lambda client: Committer(client, sink.options, zombie).abort_unlisted(listed))
    sink.abort(0, written)
    assert sink.open_transactions() == [later.prepared.transactional_id]
    sink.commit(1, later)
    assert sink.settled([*large("a"), *large("b")])


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


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)], ids=["upgrade", "downgrade"])
def test_ends_before_the_transaction_version_changed_are_recognized(
    versions: tuple[int, int],
) -> None:
    with penstock.Cluster() as cluster:
        set_transaction_version(cluster.bootstrap_servers, versions[0])
        sink = new_sink(cluster.bootstrap_servers)
        lease = sink.lease()
        sink.commit_until("clear_list", 0, sink.write(lease, 0, large("a")))
        set_transaction_version(cluster.bootstrap_servers, versions[1])
        assert sink.lease().decided == Decision(QUERY, 0)
        assert sink.settled(large("a"))


def test_lease_does_not_trust_the_end_offset_of_a_leader(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was paused answers ListOffsets from before its successor was elected."""
    sink.batch(0, small("a"))
    partition = sink.call(lambda client: _decision_partition(client, sink.name))
    stale = sink.call(lambda client: client.admin.list_offsets({partition: LATEST}))
    # Another process decides, so this one has not read it.
    remembered = {key: copy(read) for key, read in decision_log._read.items()}
    sink.batch(1, small("b"))
    monkeypatch.setattr(decision_log, "_read", remembered)

    async def list_stale(*_arguments: object) -> object:
        return stale

    monkeypatch.setattr(AdminClient, "list_offsets", list_stale)
    assert sink.lease().decided == Decision(QUERY, 1)


async def _decision_partition(client: Client, sink: str) -> TopicPartition:
    return decision_log.DecisionLog(client, sink, 10).partition


# Abort


def test_abort_of_a_failed_batch(sink: Sink) -> None:
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.abort(0, written, None)
    if sink.is_v2():
        assert sink.open_transactions() == []
        with pytest.raises(SinkError):
            sink.commit(0, written)
    else:
        # The abort of a transaction that was not begun proves nothing below version 2.
        assert sink.open_transactions() != []
    sink.batch(0, large("a"))
    assert sink.settled(large("a"))


def test_abort_in_the_middle_of_the_commit(sink: Sink) -> None:
    lease = sink.lease()
    results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
    sink.commit_until("decide", 0, *results)
    sink.abort(0, *results)
    assert sink.settled([])
    assert sink.decision() is None


def test_abort_after_the_decision_touches_nothing(sink: Sink) -> None:
    lease = sink.lease()
    results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
    sink.commit_until("end_listed", 0, *results)
    sink.abort(0, *results)
    assert len(sink.open_transactions()) == 1
    sink.lease()
    assert sink.settled([*large("a"), "b"])


def test_abort_without_results_aborts_what_the_tasks_left(sink: Sink) -> None:
    """Two-phase transactions have no timeout, and the query may not come back."""
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.abort(0, None, None)
    assert sink.open_transactions() == []
    with pytest.raises(SinkError):
        sink.commit(0, written)
    sink.batch(0, large("a"))
    assert sink.settled(large("a"))


def test_abort_without_results_does_not_fence_a_successor(sink: Sink) -> None:
    sink.batch(0, small("a"))
    sink.batch(1, small("b"))
    successor = sink.lease()
    # All tasks of a driver that was replaced in batch 1 have failed.
    sink.abort(1, None, None)
    sink.commit(2, sink.write(successor, 2, small("c")))
    assert sink.settled(["a", "b", "c"])


def test_abort_without_results_commits_what_is_decided(sink: Sink) -> None:
    lease = sink.lease()
    sink.commit_until("end_listed", 0, sink.write(lease, 0, large("a")))
    sink.abort(0, None, None)
    assert sink.settled(large("a"))


@pytest.mark.parametrize("versions", [(1, 2), (2, 1)], ids=["upgrade", "downgrade"])
def test_abort_after_the_transaction_version_changed_touches_nothing(
    versions: tuple[int, int],
) -> None:
    with penstock.Cluster() as cluster:
        set_transaction_version(cluster.bootstrap_servers, versions[0])
        sink = new_sink(cluster.bootstrap_servers)
        lease = sink.lease()
        results = sink.write(lease, 0, large("a")), sink.write(lease, 0, small("b"))
        sink.commit_until("end_listed", 0, *results)
        set_transaction_version(cluster.bootstrap_servers, versions[1])
        sink.abort(0, *results)
        assert len(sink.open_transactions()) == 1
        sink.lease()
        assert sink.settled([*large("a"), "b"])


# Checkpoints


def test_older_checkpoint_is_refused(sink: Sink) -> None:
    sink.batch(0, small("a"))
    sink.batch(1, small("b"))
    with pytest.raises(SinkError, match="older checkpoint: batch 0"):
        sink.batch(0, small("a"))
    assert sink.settled(["a", "b"])


def test_repeated_batch_with_other_offsets_is_refused(servers: str, tmp_path: Path) -> None:
    sink = new_sink(servers, checkpointLocation=str(tmp_path))
    (tmp_path / "offsets").mkdir()
    offsets = tmp_path / "offsets" / "0"
    offsets.write_text("v1\n{}\n1")
    sink.batch(0, small("a"))
    sink.batch(0, small("a"))
    offsets.write_text("v1\n{}\n2")
    with pytest.raises(SinkError, match="older checkpoint: the offsets of batch 0"):
        sink.batch(0, small("a", "b"))
    assert sink.settled(["a"])


def test_two_queries_do_not_alternate(sink: Sink) -> None:
    """The decision of one hides what the other one has written."""

    def batch(query: str, batch_id: int) -> None:
        written = sink.write(sink.lease(), batch_id, small(f"{query}{batch_id}"), query=query)
        sink.commit(batch_id, written)

    batch("A", 0)
    batch("A", 1)
    with pytest.raises(SinkError, match="query B starts at batch 3, but query A"):
        batch("B", 3)
    batch("B", 0)
    for batch_id in (0, 1, 2):
        with pytest.raises(SinkError, match=r"query A has written to sink .* before query B"):
            batch("A", batch_id)
    batch("B", 1)
    assert sink.settled(["A0", "A1", "B0", "B1"])


def test_deleted_checkpoint_writes_again(sink: Sink) -> None:
    sink.batch(0, small("a"))
    lease = sink.lease()
    sink.commit(0, sink.write(lease, 0, small("a"), query="another query"))
    assert sink.settled(["a", "a"])


# Batch writes with txnAppId and txnVersion


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
    topic = f"topic-{next(_numbers)}-".ljust(240, "t")
    sink = Sink(servers, "unused", topic)
    sink.create_topic()
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "txnVersion": "1"}
    writer = ExactlyOnceBatchWriter(sink_options({**options, "txnAppId": "orders-pipeline"}))
    writer.take_lease()
    writer.commit([writer.write(rows(["a"]))])
    assert sink.settled(["a"])
    name = f"orders-pipeline:{topic}"
    assert "0 committed" in run("transactions", "end", name, "--bootstrap-server", servers)


def test_partition_that_was_added_is_found(sink: Sink) -> None:
    sink.batch(0, small("a"))
    with BlockingClient(sink.options.connection) as other:
        other.call(lambda client: client.admin.create_partitions(sink.topic, 4))
    row = pa.record_batch(
        [pa.array(["b"]), pa.array([3], pa.int32())], names=["value", "partition"]
    )
    written = TaskWriter(sink.options, sink.lease(), QUERY, 1).write(iter([row]))
    assert [rows.partition.partition for rows in written.inline] == [3]


# The topic with the decisions


def test_null_value_is_no_decision(sink: Sink) -> None:
    sink.batch(0, small("a"))

    async def delete(client: Client) -> None:
        sender = await BatchSender.open(client, sink.options)
        producer_id, epoch = sender.producer
        batch = build_batch(
            [(sink.name.encode(), None, (), 1)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )
        await sender.send(decision_log.DecisionLog(client, sink.name, 10).partition, batch)
        await sender.flush()
        await sender.close()

    sink.call(delete)
    assert sink.lease().decided is None
    sink.batch(7, small("b"))
    assert sink.settled(["a", "b"])


def test_decision_of_many_transactions(sink: Sink) -> None:
    lease = sink.lease()
    listed = tuple(
        PreparedTransaction(f"{sink.name}/{number:016x}/0", ProducerIdAndEpoch(number, 1))
        for number in range(20_000)
    )

    async def write(client: Client) -> None:
        log = decision_log.DecisionLog(client, sink.name, 10)
        await log.write(sink.options, Decision(QUERY, 0, None, listed), lease.producer)

    sink.call(write)
    assert sink.lease().decided is None


def test_decision_topic_that_deletes_is_refused() -> None:
    with penstock.Cluster() as cluster:
        sink = new_sink(cluster.bootstrap_servers)
        sink.call(lambda client: client.admin.create_topic(DECISION_TOPIC, partitions=16))
        with pytest.raises(SinkError, match=r"has cleanup\.policy=delete"):
            sink.lease()


@pytest.mark.parametrize(
    ("brokers", "factor", "configs"),
    [
        (1, 1, {}),
        (2, 2, {}),
        (3, 3, {"min.insync.replicas": "2"}),
        (9, 3, {"min.insync.replicas": "2"}),
    ],
)
def test_replicas_of_decisions(brokers: int, factor: int, configs: dict[str, str]) -> None:
    assert decision_log.replication(brokers) == (factor, configs)


def test_failed_lease_leaves_nothing_running(sink: Sink) -> None:
    async def fail(client: Client) -> list[str]:
        taker = LeaseTaker(client, sink.options, sink.name)
        reading = asyncio.Event()
        ended: list[str] = []

        async def read() -> None:
            reading.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("read_decision")

        async def list_open() -> None:
            await reading.wait()
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "ListTransactions failed")

        taker.read_decision, taker.list_open = read, list_open  # type: ignore
        with pytest.raises(KafkaError, match="ListTransactions failed"):
            await taker.take()
        return ended

    assert sink.call(fail) == ["read_decision"]


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


# Without two-phase commit


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
    command = ("transactions", "end", sink.name, "--bootstrap-server", plain_servers)
    assert "are lost" in run(*command, code=1)
    assert run(*command, "--accept-loss") == f"Sink {sink.name}: 0 committed, 0 aborted, 1 lost."
    sink.batch(1, small("b"))
    assert sink.settled(["b"])


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


# penstock transactions end


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(build("transactions"), list(words))
    assert result.exit_code == code, result.output
    return result.output.strip()


def test_end_of_an_abandoned_sink(servers: str, sink: Sink) -> None:
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.write_elsewhere(lease, 0, large("b"))
    decide(sink, written)
    command = ("transactions", "end", sink.name, "--bootstrap-server", servers)
    assert run(*command) == f"Sink {sink.name}: 1 committed, 1 aborted."
    assert sink.settled(large("a"))
    assert run(*command) == f"Sink {sink.name}: 0 committed, 0 aborted."
    # The query may come back.
    assert sink.write(sink.lease(), 0, large("a")).drained


def test_end_of_an_unknown_sink(servers: str) -> None:
    command = ("transactions", "end", "--bootstrap-server", servers)
    assert "there are no transactions of a sink nobody" in run(*command, "nobody", code=1)
    assert "without a slash" in run(*command, "a/b", code=1)
