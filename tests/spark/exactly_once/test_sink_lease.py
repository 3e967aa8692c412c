"""The lease of the exactly-once sink: it fences the driver before it, finds its decision and
settles what it left. Older checkpoints and other queries are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.admin.admin_client import AdminClient
from penstock.client.admin.transactions import TransactionListing
from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision, SinkError
from penstock.spark.sink.exactly_once import prepared_of
from penstock.spark.sink.lease import Lease, LeaseTaker
from penstock.spark.sink.task import TaskResult
from tests.spark.exactly_once.brokers import new_sink, set_transaction_version
from tests.spark.exactly_once.sink import QUERY, Sink, large, small


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


@pytest.mark.parametrize("name", ["a.b*(c) [d]{2}", "größe+|^$\\\\", "s" * 200])
def test_brokers_list_the_transactions_of_the_sink_alone(
    servers: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, other = new_sink(servers, sinkName=name), new_sink(servers)
    sink.name = name
    written = sink.write(sink.lease(), 0, large("a")), other.write(other.lease(), 0, large("a"))
    listed: list[str] = []
    list_transactions = AdminClient.list_transactions

    async def note(admin: AdminClient, **filters: Any) -> dict[int, list[TransactionListing]]:
        found = await list_transactions(admin, **filters)
        listed.extend(each.transactional_id for broker in found.values() for each in broker)
        return found

    monkeypatch.setattr(AdminClient, "list_transactions", note)
    assert written[0].prepared is not None
    sink.commit(0, written[0])
    assert listed == [written[0].prepared.transactional_id]
    monkeypatch.undo()
    other.commit(0, written[1])
    assert sink.settled(large("a"))


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGULAR_EXPRESSION]
)
def test_brokers_that_cannot_filter_list_all_transactions(
    sink: Sink, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.write(sink.lease(), 0, large("a"))
    list_transactions = AdminClient.list_transactions

    async def refuse(
        admin: AdminClient, *, pattern: str | None = None, **filters: Any
    ) -> dict[int, list[TransactionListing]]:
        if pattern is not None:
            raise KafkaError(code, "no filter by pattern")
        return await list_transactions(admin, **filters)

    monkeypatch.setattr(AdminClient, "list_transactions", refuse)
    sink.batch(0, large("a"))
    monkeypatch.undo()
    assert sink.settled(large("a"))


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
