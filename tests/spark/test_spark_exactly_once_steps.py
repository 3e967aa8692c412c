"""The protocol of the exactly-once sink on a broker, step by step, with a crash after each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.kafka import features
from penstock.client.client import Client
from penstock.spark.options import sink_options, source_options
from penstock.spark.options.sink import DECISION_TOPIC
from penstock.spark.shared_client import close_shared_clients
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision, PreparedTransaction, SinkError
from penstock.spark.sink.exactly_once import ExactlyOnceBatchWriter, prepared_of
from penstock.spark.sink.lease import Lease, LeaseTaker
from penstock.spark.sink.task import TaskResult, TaskWriter
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
    # The commit clears the list, or the next lease, and then the same ids are used again.
    listed = () if sink.is_v2() else prepared_of(results)
    assert sink.decision() == Decision(QUERY, 0, None, listed)
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


def test_zombie_task_is_aborted_by_the_next_lease(sink: Sink) -> None:
    zombie = sink.lease()
    lease = sink.lease()
    sink.write_elsewhere(zombie, 0, large("a"))
    sink.commit(0, sink.write(lease, 0, small("a")))
    assert sink.visible() == []
    sink.lease()
    assert sink.settled(["a"])


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


def test_abort_without_results_touches_nothing(sink: Sink) -> None:
    lease = sink.lease()
    written = sink.write(lease, 0, large("a"))
    sink.abort(0, None, None)
    sink.commit(0, written)
    assert sink.settled(large("a"))


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
    decide(sink, sink.write(lease, 0, large("a")))
    sink.write_elsewhere(lease, 0, large("b"))
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
