"""penstock transactions and kafka-transactions.sh on a cluster, which has an open, a committed and
a hanging transaction. The lines are those of Apache Kafka 4.3.0's tool."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.kafka import console_consumer, dump_log, log_dirs, transactions
from penstock.client.client import Client
from penstock.client.errors import check
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import build_batch
from penstock.world import World
from penstock.world.real import run
from tests.cli.kafka_tool import Tool

HOUR_MS = 3_600_000
HANGING_PRODUCER = 4242
OPEN, DONE, HANGING = "open", "done", "hanging"


class Cluster(NamedTuple):
    bootstrap: str
    now_ms: int


def with_client(bootstrap: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        async with Client(world, bootstrap) as client:
            await work(client)

    run(main)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"transaction.partition.verification.enable": "false"}
    with penstock.Cluster(settings) as running:
        times: list[int] = []

        async def prepare(client: Client) -> None:
            times.append(client.cluster.world.clock.now_ms())
            for topic in (OPEN, DONE, HANGING):
                await client.admin.create_topic(topic, partitions=1)
            async with client.producer(transactional_id="payments-1") as producer:
                await producer.init_transactions()
                for commit in (False, True):
                    producer.begin_transaction()
                    await producer.send(DONE, b"committed" if commit else b"aborted")
                    await producer.flush()
                    await (producer.commit_transaction if commit else producer.abort_transaction)()
            await begin_hanging(client, times[0] - HOUR_MS)
            async with client.producer(transactional_id="open-1", two_phase_commit=True) as left:
                await left.init_transactions()
                left.begin_transaction()
                await left.send(OPEN, b"undecided")
                await left.prepare_transaction()

        with_client(running.bootstrap_servers, prepare)
        yield Cluster(running.bootstrap_servers, times[0])


async def begin_hanging(client: Client, timestamp: int) -> None:
    """Write a transactional batch that no coordinator knows of, as before KIP-890."""
    records = build_batch(
        [(None, b"hanging", (), timestamp)],
        producer_id=HANGING_PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = ProduceRequest.TopicData.PartitionData(index=0, records=records)
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=10_000,
        topic_data=(ProduceRequest.TopicData(name=HANGING, partition_data=(data,)),),
    )
    connection = await client.cluster.any_broker()
    response = await connection.call(request, ProduceResponse, max_version=11)
    check(response.responses[0].partition_responses[0].error_code, "not written")


def rows(out: str) -> list[list[str]]:
    """Return the cells of Kafka's table: padded, and each followed by a tab."""
    lines = out.splitlines()
    assert all(line.endswith("\t") for line in lines)
    assert len({len(line) for line in lines}) == 1
    return [[cell.rstrip() for cell in line.split("\t")[:-1]] for line in lines]


@pytest.fixture
def kafka(tool: Tool, cluster: Cluster) -> Tool:
    def call(*words: str) -> tuple[int, str, str]:
        return tool(transactions.run, "--bootstrap-server", cluster.bootstrap, *words)

    return call


def test_list_prints_kafkas_table(kafka: Tool) -> None:
    code, out, err = kafka("list")
    assert (code, err) == (0, "")
    heading, *listed = rows(out)
    assert heading == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    states = {row[0]: row[3] for row in listed}
    assert states == {"payments-1": "CompleteCommit", "open-1": "Ongoing"}
    assert {row[1] for row in listed} == {"1"}
    assert [
        row[0] for row in rows(kafka("list", "--transactional-id-pattern", "pay.*")[1])[1:]
    ] == ["payments-1"]
    assert rows(kafka("list", "--duration-filter", str(HOUR_MS))[1])[1:] == []
    assert len(rows(kafka("list", "--duration-filter", "-1")[1])) == 3


def test_an_invalid_pattern_is_refused_by_the_broker(kafka: Tool) -> None:
    code, out, err = kafka("list", "--transactional-id-pattern", "(")
    assert (code, out) == (1, "")
    assert err == (
        "Failed to list transactions: ListTransactions request sent to broker 1 failed with an "
        "unexpected exception. Enable debug logging for additional detail.\n"
    )


def test_describe_prints_kafkas_table(kafka: Tool, cluster: Cluster) -> None:
    code, out, err = kafka("describe", "--transactional-id", "open-1")
    assert (code, err) == (0, "")
    heading, row = rows(out)
    assert heading == [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    described = dict(zip(heading, row, strict=True))
    assert described["CoordinatorId"] == "1"
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == "open-0"
    assert int(described["CurrentTransactionStartTimeMs"]) >= cluster.now_ms
    assert int(described["TransactionDurationMs"]) >= 0
    code, out, err = kafka("describe", "--transactional-id", "missing")
    assert (code, out) == (1, "")
    assert err == (
        "Failed to describe transaction state of transactional-id `missing`: DescribeTransactions "
        "request for transactionalId `missing` failed because the ID could not be found. Enable "
        "debug logging for additional detail.\n"
    )


def test_describe_producers_prints_kafkas_table(kafka: Tool, cluster: Cluster) -> None:
    words = ("describe-producers", "--partition", "0", "--topic")
    heading, row = rows(kafka(*words, HANGING)[1])
    assert heading == [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]
    assert row == [str(HANGING_PRODUCER), "0", "-1", "0", str(cluster.now_ms - HOUR_MS), "0"]
    (_heading, row) = rows(kafka(*words, DONE, "--broker-id", "1")[1])
    assert row[5] == "None"
    code, out, err = kafka(*words, DONE, "--broker-id", "9")
    assert (code, out) == (1, "")
    assert err.startswith("Failed to describe producers for partition done-0 on broker 9: ")


HANGING_HEADING = [
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
]


def test_a_hanging_transaction_is_found_and_aborted(
    kafka: Tool, tool: Tool, cluster: Cluster
) -> None:
    heading, row = rows(kafka("find-hanging", "--broker-id", "1")[1])
    assert heading == HANGING_HEADING
    assert row[:6] == [HANGING, "0", str(HANGING_PRODUCER), "0", "-1", "0"]
    assert int(row[7]) == 60
    found = rows(kafka("find-hanging", "--topic", OPEN, "--max-transaction-timeout", "0")[1])
    assert found == [HANGING_HEADING]
    abort = ("abort", "--topic", HANGING, "--partition", "0")
    code, out, err = kafka(*abort, "--start-offset", "7")
    assert (code, out) == (1, "")
    assert err == (
        "Could not find any open transactions starting at offset 7 on partition hanging-0\n"
    )
    stale = ("--producer-id", "1", "--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert kafka(*abort, "--start-offset", "0") == (0, "", "")
    assert rows(kafka("find-hanging", "--broker-id", "1")[1]) == [HANGING_HEADING]
    assert kafka(*abort, *stale)[0] == 0  # A marker of a producer without a transaction.
    code, out, _err = tool(
        console_consumer.run,
        *("--bootstrap-server", cluster.bootstrap, "--topic", HANGING, "--from-beginning"),
        *("--isolation-level", "read_committed", "--timeout-ms", "1000"),
    )
    assert (code, out) == (0, "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "kafka-transactions.sh: error: too few arguments"),
        (
            ["describe"],
            "kafka-transactions.sh: error: argument --transactional-id is required",
        ),
        (
            ["abort", "--topic", "t", "--partition", "0"],
            "The transaction to abort must be identified either with --start-offset (for brokers "
            "on 3.0 or above) or with --producer-id, --producer-epoch, and --coordinator-epoch "
            "(for older brokers)",
        ),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
            "Missing required argument --producer-epoch",
        ),
        (
            [
                *("abort", "--topic", "t", "--partition", "0", "--producer-id", "1"),
                *("--producer-epoch", "0"),
            ],
            "Missing required argument --coordinator-epoch",
        ),
        (
            ["find-hanging"],
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search",
        ),
        (
            ["find-hanging", "--broker-id", "1", "--partition", "0"],
            "The --partition argument requires --topic to be provided",
        ),
    ],
)
def test_invalid_arguments_print_kafkas_errors(tool: Tool, words: list[str], reason: str) -> None:
    code, out, err = tool(transactions.run, "--bootstrap-server", "x:1", *words)
    assert (code, out, err.splitlines()[-1]) == (1, "", reason)


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(build("transactions", "consume"), list(words))
    return result.exit_code, result.output


def test_penstock_lists_and_describes(cluster: Cluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    code, out = invoke("transactions", "list", "--json", "--state", "Ongoing", *at)
    assert code == 0
    assert [(found["transactional_id"], found["state"]) for found in json.loads(out)] == [
        ("open-1", "Ongoing")
    ]
    code, out = invoke("transactions", "list", *at)
    assert code == 0
    assert out.splitlines()[0].split("  ")[0] == "TRANSACTIONAL ID"
    code, out = invoke("transactions", "describe", "open-1", "--json", *at)
    assert (code, json.loads(out)["partitions"]) == (0, ["open-0"])
    code, out = invoke("transactions", "describe", "open-1", *at)
    assert code == 0
    assert out.startswith("transactional id open-1  Ongoing  open for ")
    code, out = invoke("transactions", "list", "--state", "Open", *at)
    assert code == 1
    assert "'Open' is not a state" in out
    code, out = invoke("transactions", "find-hanging", "--json", "--topic", OPEN, *at)
    assert (code, json.loads(out)) == (0, [])


def test_penstock_consume_reads_committed_records(cluster: Cluster) -> None:
    words = ("consume", DONE, "--from-beginning", "--exit-at-end", "--bootstrap-server")
    assert invoke(*words, cluster.bootstrap) == (0, "aborted\ncommitted\n")
    assert invoke(*words, cluster.bootstrap, "--isolation", "read_committed") == (0, "committed\n")
    code, out = invoke(*words, cluster.bootstrap, "--isolation", "dirty")
    assert code == 1
    assert "'dirty' is not one of read_uncommitted and read_committed" in out


def test_dump_log_decodes_the_transaction_log_as_kafka_does(tool: Tool, cluster: Cluster) -> None:
    described = tool(log_dirs.run, "--bootstrap-server", cluster.bootstrap, "--describe")[1]
    (directory,) = json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"]
    used = [part["partition"] for part in directory["partitions"] if part["size"]]
    files = ",".join(
        f"{directory['logDir']}/{name}/{0:020}.log"
        for name in used
        if name.startswith("__transaction_state-")
    )
    code, out, err = tool(dump_log.run, "--files", files, "--transaction-log-decoder")
    assert (code, err) == (0, "")
    records = [line for line in out.splitlines() if "payments-1" in line]
    keys = {line.partition(" key: ")[2].partition(" payload: ")[0] for line in records}
    assert keys == {'{"type":"0","data":{"transactionalId":"payments-1"}}'}
    last = json.loads(records[-1].partition(" payload: ")[2])
    assert last["version"] == "1"
    fields = last["data"]
    assert (fields["transactionStatus"], fields["transactionPartitions"]) == (4, [])
    assert next(iter(fields)) == "producerId"


def test_an_open_transaction_is_aborted_by_its_id(kafka: Tool, cluster: Cluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    code, out = invoke("transactions", "abort", "missing", "--yes", *at)
    assert code == 1
    assert "could not be found" in out
    assert invoke("transactions", "abort", *at)[0] == 1
    assert invoke("transactions", "abort", "x", "--topic", "t", *at)[0] == 1
    code, out = invoke("transactions", "abort", "open-1", "--yes", *at)
    assert (code, out) == (0, "Aborted the transaction of open-1 and fenced its producer.\n")
    assert kafka("forceTerminateTransaction", "--transactionalId", "payments-1") == (0, "", "")
    assert {row[3] for row in rows(kafka("list")[1])[1:]} == {"Empty"}
