"""Kafka's DumpLogSegments on a compacted topic and compacted __consumer_offsets of Penstock.

Run by `make test-java`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.compacted_topic import (
    KEYS,
    SETTINGS,
    TOPIC,
    Updates,
    active_segment,
    clean_offset,
    create,
    data_of,
    number_in,
    scan,
    wait_clean,
    wait_settled,
)
from tests.e2e.penstock_process import PenstockProcess, running
from tests.java.dump_log import CONTENTS, SANITY, VERIFY, dump, dumped_batches, dumped_records

pytestmark = pytest.mark.java

UPDATES = 60_000
OFFSETS = "__consumer_offsets"
OFFSETS_SETTINGS = (
    "offsets.topic.num.partitions=1",
    "offsets.topic.segment.bytes=1048576",
    "log.cleaner.min.cleanable.ratio=0.2",
)
GROUP_SIZE, COMMITS = 200, 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    with running(
        PenstockProcess(tmp_path_factory.mktemp("compaction"), *SETTINGS, *OFFSETS_SETTINGS)
    ) as process:
        yield process


def files_of(broker: PenstockProcess, topic: str) -> list[Path]:
    directory = data_of(broker) / f"{topic}-0"
    return [
        file
        for suffix in ("log", "index", "timeindex")
        for file in sorted(directory.glob(f"*.{suffix}"))
    ]


def logs_of(broker: PenstockProcess, topic: str) -> list[Path]:
    return [file for file in files_of(broker, topic) if file.suffix == ".log"]


def assert_indexes_are_sound(files: list[Path]) -> None:
    for flags in (SANITY, VERIFY):
        _printed, complaints = dump(files, flags, compacted=True)
        assert complaints == []


def test_dump_log_reads_the_same_compacted_topic_as_a_consumer(
    broker: PenstockProcess, record_property: Callable[[str, object], None]
) -> None:
    create(broker.bootstrap)
    # Producers whose only record is superseded: compaction keeps their last batch, without records.
    for _ in range(3):
        once = Updates(broker.bootstrap)
        once.send(1)
        once.flush()
    updates = Updates(broker.bootstrap)
    updates.send(UPDATES)
    updates.flush()
    wait_clean(data_of(broker), active_segment(data_of(broker)) // 2)
    wait_settled(data_of(broker))
    seen, clean = scan(broker.bootstrap), clean_offset(data_of(broker))
    printed, complaints = dump(logs_of(broker, TOPIC), CONTENTS, compacted=True)
    assert complaints == []
    dumped = [
        (offset, key.encode(), number_in(value.encode()))
        for offset, key, value in dumped_records(printed)
    ]
    assert dumped == seen
    offsets = [offset for offset, _key, _number in dumped]
    assert offsets == sorted(set(offsets))
    assert {key: number for _offset, key, number in dumped} == updates.acknowledged
    cleaned = Counter(key for offset, key, _number in dumped if offset < clean)
    assert len(cleaned) == KEYS
    assert set(cleaned.values()) == {1}
    batches = list(dumped_batches(printed))
    assert [int(batch["lastOffset"]) for batch in batches if batch["count"] == "0"][:3] == [0, 1, 2]
    assert len({batch["producerId"] for batch in batches}) == 4
    assert_indexes_are_sound(files_of(broker, TOPIC))
    record_property(
        "note",
        (
            f"kafka-dump-log: {UPDATES} updates of {KEYS} keys, {len(offsets)} records in "
            f"{len(batches)} batches after compaction"
        ),
    )


def test_dump_log_reads_the_compacted_offsets_of_a_group(
    broker: PenstockProcess, record_property: Callable[[str, object], None]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("read", GROUP_SIZE, 1)])["read"].result(30)
    for number in range(COMMITS):
        offsets = [TopicPartition("read", partition, number) for partition in range(GROUP_SIZE)]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", offsets)])[
            "readers"
        ].result(30)
    wait_clean(data_of(broker), active_segment(data_of(broker), OFFSETS) // 2, OFFSETS)
    wait_settled(data_of(broker), OFFSETS)
    printed, complaints = dump(
        logs_of(broker, OFFSETS), (*CONTENTS, "--offsets-decoder"), compacted=True
    )
    assert complaints == []
    records = [
        (offset, json.loads(key)["data"], json.loads(value)["data"])
        for offset, key, value in dumped_records(printed)
    ]
    commits = [
        (offset, key["partition"], value["offset"])
        for offset, key, value in records
        if key.get("topic") == "read"
    ]
    described = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])[
        "readers"
    ].result(30)
    committed = {partition.partition: partition.offset for partition in described.topic_partitions}
    assert committed == dict.fromkeys(range(GROUP_SIZE), COMMITS - 1)
    assert {partition: at for _offset, partition, at in commits} == committed
    clean = clean_offset(data_of(broker), OFFSETS)
    cleaned = Counter(partition for offset, partition, _at in commits if offset < clean)
    assert cleaned == dict.fromkeys(range(GROUP_SIZE), 1)
    assert len(commits) < GROUP_SIZE * COMMITS / 2
    assert_indexes_are_sound(files_of(broker, OFFSETS))
    record_property(
        "note",
        (
            f"kafka-dump-log: {GROUP_SIZE * COMMITS} commits of {GROUP_SIZE} offsets, "
            f"{len(commits)} "
            "after compaction"
        ),
    )
