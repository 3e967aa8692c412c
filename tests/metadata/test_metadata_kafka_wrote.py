"""Replays a metadata log that Apache Kafka 4.3 wrote."""

from __future__ import annotations

from pathlib import Path

from penstock.metadata.image import BROKER, NO_LEADER, TOPIC, MetadataImage
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.records.batch import batches
from penstock.records.record import records_of
from tests.fixtures import kafka_wrote

METADATA_LOGS = sorted((kafka_wrote.DATA / "__cluster_metadata-0").glob("*.log"))


def replayed(image: MetadataImage, path: Path) -> MetadataImage:
    data = path.read_bytes()
    for position, header in batches(data):
        values = (
            []
            if header.is_control
            else [record.value or b"" for record in records_of(data, header, position)]
        )
        image, _delta = image.replay([decode_record(value) for value in values], header.last_offset)
    return image


def cluster() -> MetadataImage:
    image = MetadataImage.empty()
    for path in METADATA_LOGS:
        image = replayed(image, path)
    return image


def test_topics_have_the_ids_and_partitions_that_kafka_reported() -> None:
    reported = {
        (partition.name.topic, partition.name.partition, partition.topic_id)
        for partition in kafka_wrote.partitions()
    }
    image = cluster()
    assert {
        (topic.name, index, topic.id)
        for topic in image.topics.values()
        for index in topic.partitions
    } == reported
    assert image.topic_names == {topic.id: topic.name for topic in image.topics.values()}


def test_settings_are_those_given_at_topic_creation() -> None:
    image = cluster()
    assert image.topic_configs("log-append-time") == {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
    }
    assert image.topic_configs("compacted")["cleanup.policy"] == "compact"
    assert image.configs[BROKER, ""] == {"min.insync.replicas": "1"}
    assert {name for kind, name in image.configs if kind == TOPIC} == set(image.topics)


def test_broker_is_fenced_after_controlled_shutdown_and_its_partitions_are_offline() -> None:
    image = cluster()
    assert (
        image.brokers[1].fenced,
        image.brokers[1].in_controlled_shutdown,
        list(image.controllers),
    ) == (True, True, [1])
    for topic in image.topics.values():
        for state in topic.partitions.values():
            assert (state.leader, state.isr, state.eligible_leader_replicas) == (
                NO_LEADER,
                (),
                (1,),
            )
            assert state.directories == image.brokers[1].directories


def test_features_and_producer_ids() -> None:
    assert cluster().features == cluster_features()
    assert cluster().next_producer_id == 2_000


def cluster_features() -> dict[str, int]:
    return {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_offset_is_that_of_the_last_batch_including_control_batches() -> None:
    data = b"".join(path.read_bytes() for path in METADATA_LOGS)
    assert cluster().offset == max(header.last_offset for _position, header in batches(data))


def test_bootstrap_checkpoint_has_the_feature_levels() -> None:
    image = replayed(MetadataImage.empty(), kafka_wrote.DATA / "bootstrap.checkpoint")
    assert image == MetadataImage(offset=image.offset, features=cluster_features())


def test_image_survives_a_snapshot_encoded_and_decoded() -> None:
    image = cluster()
    records = [decode_record(encode_record(record)) for record in image.records()]
    assert MetadataImage.empty().replay(records, image.offset)[0] == image
