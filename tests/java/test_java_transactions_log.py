"""The files of transactions: Kafka's DumpLogSegments reads Penstock's, and each system opens what
the other wrote.

Run by `make test-java`.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.log import names
from tests.compat.test_compat_transactions import Topic, in_each
from tests.compat.transaction_clients import ConfluentTransactions
from tests.e2e.compacted_topic import data_of
from tests.e2e.penstock_process import PenstockProcess
from tests.java.dump_log import CONTENTS, SANITY, VERIFY, dump, dumped_batches, dumped_records
from tests.java.kafka_node import KafkaNode
from tests.java.kafka_tools import TRANSACTIONS, Tools
from tests.java.transaction_transcript import QUICK_TIMEOUTS, transcript

pytestmark = pytest.mark.java

PREFIX = "log"
LEFT_OPEN = f"{PREFIX}-left-open"
GROUPS = (f"{PREFIX}-empty-group", f"{PREFIX}-many-group")
INTERNAL = ("__transaction_state-0", "__consumer_offsets-0")
SMALL = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
BATCHES = ("--deep-iteration",)
LEVELS = ("read_committed", "read_uncommitted")
TIMEOUT_S = 60.0


class PenstockNode(PenstockProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, *SMALL, f"{QUICK_TIMEOUTS}=200")

    @property
    def data(self) -> Path:
        return data_of(self)


class ApacheKafka(KafkaNode):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {QUICK_TIMEOUTS: "200", "log.retention.ms": "-1"})


Node = PenstockNode | ApacheKafka
NODES: dict[str, type[Node]] = {"penstock": PenstockNode, "kafka": ApacheKafka}


@dataclass(frozen=True)
class Wrote:
    """The directory of a node that ran tests/java/Transactions.java and stopped cleanly, and what
    clients saw of it."""

    data: Path
    seen: dict[str, Any]
    transactions: dict[str, tuple[object, ...]]
    offsets: dict[str, dict[int, int]]

    def files(self, topic: str, suffixes: tuple[str, ...] = (".log",)) -> list[Path]:
        return [
            file
            for directory in sorted(self.data.glob(f"{topic}-*"))
            if directory.is_dir()
            for file in sorted(directory.iterdir())
            if file.suffix in suffixes
        ]


@pytest.fixture(scope="module")
def wrote(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wrote]:
    return {name: write(made(tmp_path_factory.mktemp(name))) for name, made in NODES.items()}


def write(node: Node) -> Wrote:
    try:
        node.start()
        transcript(node.bootstrap, PREFIX)
        found = Wrote(
            node.data,
            visible(node.bootstrap),
            described(node.bootstrap),
            group_offsets(node.bootstrap),
        )
        node.stop()
    finally:
        node.kill()
    return found


def visible(bootstrap: str) -> dict[str, Any]:
    """Return the records and end offsets of each partition that the program wrote, at both
    isolation levels."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [
        (name, index)
        for name, topic in admin.list_topics(timeout=TIMEOUT_S).topics.items()
        if name.startswith(PREFIX)
        for index in topic.partitions
    ]
    return {
        f"{name}-{index}": seen
        for (name, index), seen in zip(
            partitions,
            zip(*(read(bootstrap, partitions, level) for level in LEVELS), strict=True),
            strict=True,
        )
    }


def read(bootstrap: str, partitions: list[tuple[str, int]], level: str) -> list[list[object]]:
    """Return the records of each partition, with its end offset at the end."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "assigned-only",
        "isolation.level": level,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    found: dict[tuple[str, int], list[object]] = {each: [] for each in partitions}
    ended = 0
    deadline = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in partitions])
        while ended < len(partitions):
            assert time.monotonic() < deadline, f"{ended} partitions were read to the end"
            message: Any = consumer.poll(1.0)
            if message is None:
                continue
            of_partition = found[message.topic(), message.partition()]
            if message.error() is None:
                of_partition.append((message.offset(), message.timestamp(), message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                of_partition.append(message.offset())
                ended += 1
    finally:
        consumer.close()
    return [found[each] for each in partitions]


def described(bootstrap: str) -> dict[str, tuple[object, ...]]:
    with closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        listed = admin.list_transactions(transactional_id_pattern=f"{PREFIX}-.*")
        ids = [each.transactional_id for several in listed.values() for each in several]
        return {
            name: (
                each.state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                each.topic_partitions,
            )
            for name, each in admin.describe_transactions(ids).items()
        }


def group_offsets(bootstrap: str) -> dict[str, dict[int, int]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = {
        group: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[
            group
        ].result(TIMEOUT_S)
        for group in GROUPS
    }
    return {
        group: {each.partition: each.offset for each in offsets.topic_partitions}
        for group, offsets in found.items()
    }


# DumpLogSegments


def states(files: list[Path]) -> dict[str, list[tuple[object, ...]]]:
    """Return the records of __transaction_state by transactional id, without ids and times that
    the broker chooses. How many steps add partitions depends on the client's batches."""
    printed, complaints = dump(files, (*CONTENTS, "--transaction-log-decoder"))
    assert complaints == []
    found: dict[str, list[tuple[object, ...]]] = {}
    for _offset, key, value in dumped_records(printed):
        data = json.loads(value)["data"]
        partitions = sorted(
            (topic["topic"], index)
            for topic in data["transactionPartitions"] or ()
            for index in topic["partitionIds"]
        )
        found.setdefault(json.loads(key)["data"]["transactionalId"], []).append(
            (
                data["transactionStatus"],
                data["producerEpoch"],
                data["transactionTimeoutMs"],
                data["transactionStartTimestampMs"] > 0,
                data.get("clientTransactionVersion"),
                partitions,
            )
        )
    return {
        name: [
            list(steps)[-1] for _status_and_epoch, steps in groupby(several, lambda each: each[:2])
        ]
        for name, several in found.items()
    }


def test_dump_log_decodes_the_transaction_log_as_that_of_apache_kafka(
    wrote: dict[str, Wrote],
) -> None:
    ours, theirs = (states(wrote[name].files("__transaction_state")) for name in NODES)
    assert ours == theirs
    assert len(ours) > 10


def batches_and_markers(files: list[Path]) -> list[tuple[str, ...]]:
    printed, complaints = dump(files, CONTENTS)
    assert complaints == []
    fields = ("baseOffset", "lastOffset", "baseSequence", "producerEpoch", "isTransactional")
    found = [
        tuple(batch[name] for name in (*fields, "isControl")) for batch in dumped_batches(printed)
    ]
    return found + re.findall(r"\| offset: (\d+) .* (endTxnMarker: \w+) ", printed)


def test_dump_log_shows_the_same_batches_and_markers_as_of_apache_kafka(
    wrote: dict[str, Wrote],
) -> None:
    for topic in ("commit", "abort", "interleaved", "fencing", "successor", "timeout", "left-open"):
        ours, theirs = (
            batches_and_markers(wrote[name].files(f"{PREFIX}-{topic}")) for name in NODES
        )
        assert ours == theirs, topic
        assert any("endTxnMarker" in str(line) for line in ours)


@pytest.mark.parametrize("flags", [BATCHES, SANITY, VERIFY], ids=["batches", "sanity", "verify"])
def test_dump_log_reports_no_problem_in_files_of_transactions(
    wrote: dict[str, Wrote], flags: tuple[str, ...]
) -> None:
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = wrote["penstock"].files(PREFIX, suffixes)
    files += wrote["penstock"].files("__transaction_state", suffixes)
    files += wrote["penstock"].files("__consumer_offsets", suffixes)
    _printed, complaints = dump(files, flags)
    assert complaints == []
    assert any(file.suffix == ".txnindex" and file.stat().st_size for file in files)


# Directories of the other system


@pytest.fixture(params=[("kafka", "penstock"), ("penstock", "kafka")], ids=" to ".join)
def moved(
    request: pytest.FixtureRequest, wrote: dict[str, Wrote], tmp_path: Path
) -> Iterator[tuple[Wrote, Node]]:
    """What one system wrote, and a stopped node of the other with the same topics, empty."""
    source, target = request.param
    node = NODES[target](tmp_path)
    try:
        node.start()
        create_topics(node.bootstrap, wrote[source])
        node.stop()
        yield wrote[source], node
    finally:
        node.kill()


def create_topics(bootstrap: str, source: Wrote) -> None:
    counts: dict[str, int] = {}
    for name in source.seen:
        topic = name.rpartition("-")[0]
        counts[topic] = counts.get(topic, 0) + 1
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, count, 1) for topic, count in counts.items()]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    use_internal_topics(bootstrap)


def use_internal_topics(bootstrap: str) -> None:
    """Commit a transaction with the offsets of a group, so that the broker creates the topics."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "first"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first"})
    producer.send_offsets_to_transaction(
        [TopicPartition(LEFT_OPEN, 0, 1)], consumer.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S)
    consumer.close()


def put_in_place(source: Path, target: Path, partitions: list[str]) -> None:
    """Replace partitions by those of the other system; they keep the topic ids of the target.
    Penstock has no files of a partition before its first record, and writes the topic id of a log
    that has none."""
    for name in partitions:
        metadata = target / name / names.PARTITION_METADATA
        own = metadata.read_bytes() if metadata.exists() else None
        shutil.rmtree(target / name, ignore_errors=own is None)
        if (source / name).exists():
            shutil.copytree(source / name, target / name)
            metadata.unlink()
        if own is not None:
            metadata.parent.mkdir(exist_ok=True)
            metadata.write_bytes(own)


def test_transactions_of_the_other_system_go_on_here(moved: tuple[Wrote, Node]) -> None:
    """The records, the transactions and the offsets that were committed in them are the same, and
    the transactional ids can be used."""
    source, node = moved
    put_in_place(source.data, node.data, [*source.seen, *INTERNAL])
    node.start()
    assert visible(node.bootstrap) == source.seen
    assert described(node.bootstrap) == source.transactions
    assert group_offsets(node.bootstrap) == source.offsets
    client = ConfluentTransactions(node.bootstrap)
    successor = client.producer(LEFT_OPEN)
    topic = Topic(client, LEFT_OPEN, 2)
    topic.wait_stable()
    before = described(node.bootstrap)[LEFT_OPEN]
    assert before[1] == source.transactions[LEFT_OPEN][1]
    assert int(str(before[2])) > int(str(source.transactions[LEFT_OPEN][2]))
    successor.begin()
    successor.send(LEFT_OPEN, {0: [b"successor"]})
    successor.commit()
    topic.wait_stable()
    assert topic.read() == {
        0: [b"committed before", b"committed after", b"successor"],
        1: [b"committed before", b"committed after"],
    }
    client.close()
    node.stop()


def test_a_hanging_transaction_is_found_and_aborted(moved: tuple[Wrote, Node]) -> None:
    """Without __transaction_state no coordinator knows the transaction that is open in the log."""
    source, node = moved
    put_in_place(source.data, node.data, list(source.seen))
    node.start()
    assert visible(node.bootstrap) == source.seen
    tools = Tools(node.bootstrap)
    where = ("--topic", LEFT_OPEN, "--partition", "0")
    starts = [
        line.split("\t")[5].strip()  # CurrentTransactionStartOffset
        for line in tools(TRANSACTIONS, "describe-producers", *where).splitlines()[1:]
    ]
    (start,) = [offset for offset in starts if offset != "None"]
    found = tools(
        TRANSACTIONS, "find-hanging", "--max-transaction-timeout", "0", "--topic", LEFT_OPEN
    )
    assert [line.split()[:2] for line in found.splitlines()[1:]] == [[LEFT_OPEN, "0"]]
    tools(TRANSACTIONS, "abort", *where, "--start-offset", start)
    client = ConfluentTransactions(node.bootstrap)
    topic = Topic(client, LEFT_OPEN, 2)
    topic.wait_stable()
    assert topic.read() == in_each(2, b"committed before", b"committed after")
    node.stop()
