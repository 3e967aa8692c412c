"""penstock doctor with a real broker in this process: what it says of a healthy one, of servers
that are no brokers, and of topics, groups, transactions and queries that are broken."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from rich.console import Console
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.doctor import gather, transactions
from penstock.cli.doctor.checkpoints import read_checkpoints
from penstock.cli.doctor.report import MAX_ROWS, rich_report
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.errors import check
from penstock.health.findings import Finding, Level
from penstock.health.observations import Observation, Probe, Reach
from penstock.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import run
from tests.cli.other_servers import (
    ask_for_authentication,
    close_at_once,
    greet_as_ssh,
    http_server,
    say_nothing,
    serving,
    shake_hands,
    support_only_future_versions,
)
from tests.e2e.penstock_process import free_port

MINUTE_MS = 60_000
HANGING_PRODUCER = 4242


def doctor(*words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON of doctor."""
    done = CliRunner().invoke(build("doctor"), ["doctor", "--json", *words])
    assert done.stdout, (done.exit_code, done.stderr, done.exception)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["exit_code"] == done.exit_code
    # The disk of the machine that runs the tests may be full.
    found = [each for each in report["findings"] if each["code"] not in ("disk-full", "disk-fills")]
    return done.exit_code, {**report, "findings": found}


def codes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["code"]: finding for finding in report["findings"]}


def ask(bootstrap: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        async with Client(world, bootstrap) as client:
            await work(client)

    run(main)


async def write(
    client: Client,
    topic: str,
    count: int,
    *,
    age_ms: int = 0,
    producer_id: int = -1,
) -> None:
    """Write records of an age; with a producer id as a transaction that no coordinator knows."""
    timestamp = client.cluster.world.clock.now_ms() - age_ms
    known = producer_id < 0
    records = build_batch(
        [(None, b"value", (), timestamp) for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=-1 if known else 0,
        base_sequence=-1 if known else 0,
        transactional=not known,
    )
    data = ProduceRequest.TopicData.PartitionData(index=0, records=records)
    request = ProduceRequest(
        transactional_id=None if known else "nobody",
        acks=-1,
        timeout_ms=10_000,
        topic_data=(ProduceRequest.TopicData(name=topic, partition_data=(data,)),),
    )
    connection = await client.cluster.any_broker()
    response = await connection.call(request, ProduceResponse, max_version=11)
    check(response.responses[0].partition_responses[0].error_code, "not written")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    settings = {
        "transaction.partition.verification.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }
    with penstock.Cluster(settings) as running:
        yield running.bootstrap_servers


@pytest.fixture
def topic(cluster: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of this test, with one partition; deleted afterwards."""
    name = request.node.name.split("[")[0][:80]

    async def create(client: Client) -> None:
        await client.admin.create_topic(name, partitions=1, replication_factor=1)

    async def delete(client: Client) -> None:
        await client.admin.delete_topic(name)

    ask(cluster, create)
    yield name
    ask(cluster, delete)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for servers that say nothing."""
    monkeypatch.setattr(gather, "PROBE_S", 0.5)


def test_a_healthy_broker_with_topics_and_a_group_has_no_findings(cluster: str, topic: str) -> None:
    async def use(client: Client) -> None:
        await write(client, topic, 10)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(4)}
        await client.groups.commit_offsets("reader", offsets)
        async with client.producer(transactional_id="payer-1") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(topic, b"paid")
            await producer.flush()
            await producer.commit_transaction()

    ask(cluster, use)
    code, report = doctor("--bootstrap-server", cluster, "--over", "0.2")
    assert (code, report["findings"], report["unseen"]) == (0, [], [])
    assert report["seen"]["brokers"] == 1
    assert report["seen"]["groups"] == 1
    assert report["version"] == 1
    done = CliRunner().invoke(
        build("doctor"), ["doctor", "--bootstrap-server", cluster, "--over", "0"]
    )
    assert done.exit_code == 0
    assert done.stdout.startswith("Nothing wrong was found: looked at 1 broker, ")


# Connections


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (close_at_once, "bootstrap-closed"),
        (say_nothing, "bootstrap-silent"),
        (greet_as_ssh, "bootstrap-other-protocol"),
        (shake_hands, "bootstrap-tls"),
        (ask_for_authentication, "bootstrap-authentication"),
        (support_only_future_versions, "bootstrap-version"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_server_that_is_no_broker(handle: Callable[..., None], code: str) -> None:
    with serving(handle) as address:
        result, report = doctor("--bootstrap-server", address)
    assert result == 1
    assert set(codes(report)) == {code}
    assert codes(report)[code]["todo"]


@pytest.mark.usefixtures("quick")
def test_a_web_server_on_the_port() -> None:
    with http_server() as address:
        result, report = doctor("--bootstrap-server", address)
    assert result == 1
    assert f"{address} speaks HTTP" in codes(report)["bootstrap-http"]["summary"]


def test_a_port_that_refuses_connections() -> None:
    result, report = doctor("--bootstrap-server", f"127.0.0.1:{free_port()}")
    assert result == 1
    assert set(codes(report)) == {"bootstrap-refused"}


def test_a_host_that_does_not_exist() -> None:
    result, report = doctor("--bootstrap-server", "no-such-host.invalid:9092")
    assert result == 1
    assert set(codes(report)) <= {"bootstrap-unknown-host", "bootstrap-name-server"}


def test_a_list_that_cannot_be_parsed() -> None:
    result, report = doctor("--bootstrap-server", "kafka:port")
    assert result == 1
    assert "'kafka:port' is not an address" in codes(report)["bootstrap-invalid"]["summary"]


def test_one_of_two_servers_is_wrong(cluster: str, topic: str) -> None:
    wrong = f"127.0.0.1:{free_port()}"
    result, report = doctor(
        "--bootstrap-server", f"{wrong},{cluster}", "--topic", topic, "--over", "0"
    )
    assert result == 0
    assert codes(report)["bootstrap-refused"]["level"] == "warning"


@pytest.mark.usefixtures("quick")
def test_a_deadline_ends_everything(cluster: str) -> None:
    with serving(say_nothing) as address:
        began_s = time.monotonic()
        result, report = doctor("--bootstrap-server", f"{address},{cluster}", "--timeout", "1")
        assert time.monotonic() - began_s < 5
    assert result == 2
    assert report["unseen"][0]["reason"] == "the deadline of 1 s was reached (--timeout)"


# Topics


def test_a_topic_that_refuses_every_write(cluster: str, topic: str) -> None:
    async def alter(client: Client) -> None:
        await client.admin.alter_configs(
            ConfigResourceType.TOPIC, topic, put={"min.insync.replicas": "2"}
        )

    ask(cluster, alter)
    result, report = doctor("--bootstrap-server", cluster, "--topic", topic, "--over", "0")
    assert result == 1
    assert set(codes(report)) == {"min-insync-above-factor"}


def test_a_topic_that_does_not_exist(cluster: str) -> None:
    result, report = doctor("--bootstrap-server", cluster, "--topic", "nowhere", "--over", "0")
    assert result == 1
    assert set(codes(report)) == {"topic-not-found"}


# Groups


def group_codes(cluster: str, group: str, over: str = "0.2") -> dict[str, dict[str, Any]]:
    _code, report = doctor("--bootstrap-server", cluster, "--group", group, "--over", over)
    assert report["unseen"] == []
    return codes(report)


def commit(cluster: str, group: str, topic: str, offset: int) -> None:
    async def work(client: Client) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset)}
        await client.groups.commit_offsets(group, offsets)

    ask(cluster, work)


def joined(cluster: str, group: str, topic: str, count: int = 1) -> list[Consumer]:
    """Return members of a group that have joined, and read nothing."""
    consumers = []
    for _ in range(count):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 100,
            }
        )
        consumer.subscribe([topic])
        consumers.append(consumer)
    stable: list[bool] = []

    async def describe(client: Client) -> None:
        described = await client.groups.describe_group(group)
        stable.append(described.state == "Stable" and len(described.members) == count)

    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        for consumer in consumers:
            consumer.poll(0.1)
        ask(cluster, describe)
        if stable[-1] and sum(len(consumer.assignment()) for consumer in consumers) == 1:
            return consumers
    raise AssertionError("the consumers did not join")


def test_a_group_that_does_not_exist(cluster: str) -> None:
    assert set(group_codes(cluster, "nobody")) == {"group-not-found"}


def test_a_group_without_members(cluster: str, topic: str) -> None:
    ask(cluster, lambda client: write(client, topic, 10))
    commit(cluster, "empty", topic, 3)
    finding = group_codes(cluster, "empty")["group-empty"]
    assert finding["level"] == "problem"
    assert "has no members, and 7 records to read" in finding["summary"]


def test_offsets_that_cannot_be_read_from(cluster: str, topic: str) -> None:
    async def delete(client: Client) -> None:
        await write(client, topic, 10)
        await client.admin.delete_records({TopicPartition(topic, 0): 8})

    ask(cluster, delete)
    commit(cluster, "late", topic, 3)
    finding = group_codes(cluster, "late")["offset-before-start"]
    assert "5 records were deleted before the group read them" in finding["summary"]
    commit(cluster, "ahead", topic, 100)
    assert "offset-beyond-end" in group_codes(cluster, "ahead")


def test_more_consumers_than_partitions(cluster: str, topic: str) -> None:
    commit(cluster, "crowd", topic, 0)
    consumers = joined(cluster, "crowd", topic, 2)
    try:
        found = group_codes(cluster, "crowd")
    finally:
        for consumer in consumers:
            consumer.close()
    assert set(found) == {"more-consumers-than-partitions"}
    assert "has 2 members for 1 partition" in found["more-consumers-than-partitions"]["summary"]


def test_a_group_that_commits_nothing(cluster: str, topic: str) -> None:
    ask(cluster, lambda client: write(client, topic, 10, age_ms=5 * MINUTE_MS))
    commit(cluster, "stuck", topic, 2)
    (consumer,) = joined(cluster, "stuck", topic)
    try:
        found = group_codes(cluster, "stuck")
    finally:
        consumer.close()
    assert set(found) == {"group-stuck"}
    assert "the first unread record is 5 min old" in found["group-stuck"]["summary"]


def test_a_group_that_reads_too_slowly(cluster: str, topic: str) -> None:
    """The member commits while doctor looks, but more is written meanwhile."""
    ask(cluster, lambda client: write(client, topic, 10, age_ms=5 * MINUTE_MS))
    commit(cluster, "slow", topic, 2)
    (consumer,) = joined(cluster, "slow", topic)
    stop = threading.Event()

    def read_slowly() -> None:
        offset = 2
        while not stop.wait(0.2):
            offset = min(offset + 1, 9)
            consumer.commit(offsets=[ConfluentPartition(topic, 0, offset)], asynchronous=False)
            ask(cluster, lambda client: write(client, topic, 20, age_ms=0))

    reader = threading.Thread(target=read_slowly)
    reader.start()
    try:
        found = group_codes(cluster, "slow", over="1")
    finally:
        stop.set()
        reader.join()
        consumer.close()
    assert set(found) == {"lag-grows"}


# Transactions


def test_a_hanging_transaction_blocks_a_group(cluster: str, topic: str) -> None:
    ask(cluster, lambda client: write(client, topic, 3, producer_id=HANGING_PRODUCER))
    commit(cluster, "committed", topic, 0)
    found = group_codes(cluster, "committed")
    assert set(found) == {"transaction-hanging", "group-blocked-by-transaction", "group-empty"}
    todo = found["transaction-hanging"]["todo"]
    assert todo == [f"penstock transactions abort --topic {topic} --partition 0 --start-offset 0"]
    words = [*todo[0].split()[1:], "--yes", "--bootstrap-server", cluster]
    done = CliRunner().invoke(build("transactions"), words)
    assert done.exit_code == 0, done.stderr
    assert "transaction-hanging" not in group_codes(cluster, "committed")


def test_a_transaction_whose_coordinators_do_not_answer_is_not_called_hanging(
    cluster: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(client: Client) -> None:
        await write(client, topic, 3, producer_id=HANGING_PRODUCER + 1)
        async with client.producer(transactional_id="payer-2") as producer:
            await producer.init_transactions()

    ask(cluster, use)
    monkeypatch.setattr(transactions, "is_reached", lambda _broker: False)
    result, report = doctor("--bootstrap-server", cluster, "--topic", topic, "--over", "0")
    assert (result, report["findings"]) == (2, [])
    (unseen,) = report["unseen"]
    assert unseen["subject"] == "hanging transactions"
    assert "have no leader that answers" in unseen["reason"]


def test_a_transactional_id_that_does_not_exist(cluster: str) -> None:
    result, report = doctor("--bootstrap-server", cluster, "--transactional-id", "x", "--over", "0")
    assert result == 1
    assert set(codes(report)) == {"transaction-not-found"}


def test_a_transaction_that_was_just_opened_is_no_finding(cluster: str, topic: str) -> None:
    async def look(client: Client) -> None:
        async with client.producer(transactional_id="open-1") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(topic, b"undecided")
            await producer.flush()

    ask(cluster, look)
    words = ("--bootstrap-server", cluster, "--topic", topic, "--over", "0")
    result, report = doctor(*words, "--transactional-id", "open-1")
    assert (result, report["findings"]) == (0, [])
    assert report["seen"]["transactions"] == 1


# Spark queries


def write_batch(query: Path, batch: int, topic: str, offset: int, at_ms: int) -> None:
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": at_ms, "conf": {}}
    source = {topic: {"0": offset}}
    for name, text in (
        ("offsets", f"v1\n{json.dumps(metadata)}\n{json.dumps(source)}"),
        ("commits", "v1\n{}"),
    ):
        (query / name).mkdir(parents=True, exist_ok=True)
        (query / name / str(batch)).write_text(text)


def test_a_query_that_reads_more_slowly_than_is_written(
    cluster: str, topic: str, tmp_path: Path
) -> None:
    now_s = time.time()
    for batch in range(4):
        write_batch(tmp_path / "enrich", batch, topic, batch * 5, int(now_s * 1000) + batch * 5_000)
    ask(cluster, lambda client: write(client, topic, 2_000))
    words = ("--bootstrap-server", cluster, "--topic", topic, "--spark-checkpoint", str(tmp_path))
    result, report = doctor(*words, "--over", "0")
    # Nothing is written now, so the query may catch up.
    assert (result, report["findings"]) == (0, [])
    assert report["seen"]["queries"] == 1
    os.utime(tmp_path / "enrich" / "commits" / "3", (now_s - 600, now_s - 600))
    result, report = doctor(*words, "--over", "0")
    assert result == 1
    finding = codes(report)["query-stalled"]
    assert finding["subjects"] == ["query enrich"]
    assert "1,985 records to read" in finding["summary"]


def test_the_rate_of_a_query_is_that_of_its_last_batches(tmp_path: Path) -> None:
    for batch in range(20):
        write_batch(tmp_path, batch, "payments", batch * 100, batch * 5_000)
    (tmp_path / "offsets" / "20").write_bytes(b"v1\n{damaged\n\xff")
    (checkpoint,) = read_checkpoints(tmp_path)
    assert (checkpoint.committed_batch, checkpoint.planned_batch) == (19, 20)
    assert (checkpoint.rate, checkpoint.batch_ms) == (20.0, 5_000.0)
    assert checkpoint.offsets == {TopicPartition("payments", 0): 1_900}


def test_a_directory_that_is_no_checkpoint(cluster: str, tmp_path: Path) -> None:
    result, report = doctor(
        "--bootstrap-server", cluster, "--spark-checkpoint", str(tmp_path), "--over", "0"
    )
    assert result == 2
    assert "has no checkpoint of a query" in report["unseen"][0]["reason"]


# Output


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(build("doctor"), ["doctor", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr == (
        f"penstock doctor: {tmp_path} has no cluster: give the --dir of penstock up\n"
    )


def test_lines_in_a_pipe() -> None:
    address = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(build("doctor"), ["doctor", "--bootstrap-server", address])
    assert done.stdout.splitlines() == [
        f"PROBLEM  bootstrap-refused: bootstrap server {address} cannot be used: {address} refuses "
        "connections",
        "         do: start the broker, or correct the port: no process listens there",
        "1 problem: looked at 0 brokers, 0 partitions, 0 groups.",
    ]


def test_a_table_on_a_terminal() -> None:
    findings = [
        Finding(f"code-{number}", Level.WARNING, (f"topic {number}",), "is odd", (), "change it")
        for number in range(MAX_ROWS + 2)
    ]
    console = Console(width=100, force_terminal=True, record=True, file=io.StringIO())
    console.print(rich_report(Observation(0), findings))
    text = console.export_text()
    assert "WHAT AND WHY" in text
    assert "topic 0 is odd" in text
    assert "change it" in text
    assert "and 2 more: see --json" in text


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([("b", 120, Reach.KAFKA, "x"), ("c", 110, Reach.KAFKA, "x")], "b"),
        ([("b", 100, Reach.KAFKA, "x")], "a"),
        ([("b", 120, Reach.KAFKA, "another cluster")], "a"),
        ([("b", None, Reach.TIMED_OUT, None)], "a"),
    ],
    ids=["newer", "as new", "another cluster", "not reached"],
)
def test_the_broker_with_the_newest_metadata_describes_the_cluster(
    others: list[tuple[str, int | None, Reach, str | None]], expected: str
) -> None:
    """One that the controllers do not reach describes it as it was."""
    asked = Probe("a", 1, Reach.KAFKA, cluster_id="x", metadata_offset=100)
    probes = [
        Probe(host, 1, reach, cluster_id=cluster_id, metadata_offset=offset)
        for host, offset, reach, cluster_id in others
    ]
    assert gather._newest_like(asked, probes).host == expected
