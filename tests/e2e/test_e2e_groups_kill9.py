"""A broker that restarts after kill -9 has every offset that it acknowledged, of every group."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.penstock_process import PenstockProcess

TOPIC, PARTITIONS, GROUPS = "kept", 6, 20


def test_committed_offsets_survive_kill_9(tmp_path: Path) -> None:
    broker = PenstockProcess(tmp_path)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        for round_ in range(1, 4):
            for number in range(GROUPS):
                _commit(admin, f"group-{number}", 1_000 * round_ + number)
        broker.kill()
        broker.start()
        for number in range(GROUPS):
            assert _committed(admin, f"group-{number}") == dict.fromkeys(
                range(PARTITIONS), 3_000 + number
            )
        listed = admin.list_consumer_groups(request_timeout=30).result()
        assert {group.group_id for group in listed.valid} == {
            f"group-{number}" for number in range(GROUPS)
        }
        broker.stop()
    finally:
        broker.kill()


def _commit(admin: AdminClient, group: str, offset: int) -> None:
    offsets = [TopicPartition(TOPIC, partition, offset) for partition in range(PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[
        group
    ].result(30)


def _committed(admin: AdminClient, group: str) -> dict[int, int]:
    """Retry while the coordinator loads the group: librdkafka's admin client does not."""
    deadline = time.monotonic() + 30
    while True:
        try:
            found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[
                group
            ].result(30)
            return {committed.partition: committed.offset for committed in found.topic_partitions}
        except KafkaException as error:
            if (
                error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                or time.monotonic() > deadline
            ):
                raise
            time.sleep(0.02)
