"""The stand-in for testcontainers' KafkaContainer, used as that is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from penstock.testing.containers import KafkaContainer
from penstock.testing.host_process import ClusterError


def test_a_message_is_produced_and_consumed() -> None:
    """As in the tests of testcontainers."""
    with KafkaContainer(port=9888).with_kraft() as kafka:
        assert (kafka.kraft_enabled, kafka.port, kafka.status) == (True, 9888, "running")
        server = kafka.get_bootstrap_server()
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9888)
        assert server == f"{host}:{port}"
        producer = KafkaProducer(bootstrap_servers=[server])
        producer.send("test-topic", b"verification message")
        producer.flush()
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=[server])
        partition = TopicPartition("test-topic", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert consumer.end_offsets([partition])[partition] == 1
        consumer.close()
        assert kafka.get_logs() == (kafka.get_cluster().log(1).encode(), b"")
    assert kafka.status == "not_started"
    with pytest.raises(ClusterError, match="does not run"):
        kafka.get_bootstrap_server()


def test_variables_and_the_cluster_id_reach_the_broker() -> None:
    kafka = (
        KafkaContainer()
        .with_cluster_id("4L6g3nShT-eMCtK--X86sw")
        .with_env("KAFKA_NUM_PARTITIONS", 3)
        .with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        .with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:1")
    )
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.get_bootstrap_server()})
        assert admin.list_topics(timeout=10).cluster_id == "4L6g3nShT-eMCtK--X86sw"
        topic = kafka.get_cluster().create_topic(partitions=-1)
        assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    finally:
        kafka.stop()
    kafka.stop()  # no effect


def test_variables_are_named_as_in_the_images(tmp_path: Path) -> None:
    file = tmp_path / "kafka.env"
    file.write_text("# a comment\n\nKAFKA_LOG_RETENTION_MS=10\nexport KAFKA_A__B___C='d'\n")
    kafka = KafkaContainer(env={"OTHER": "1"}).with_env_file(file)
    kafka.with_envs(KAFKA_BROKER_ID="1", KAFKA_HEAP_OPTS="-Xmx1g")
    assert kafka._settings() == {"log.retention.ms": "10", "a-b_c": "d"}


def test_a_port_of_this_machine_can_be_chosen() -> None:
    with KafkaContainer() as kafka:
        port = kafka.get_exposed_port(9093)
    with KafkaContainer().with_bind_ports(9093, port) as kafka:
        assert kafka.get_bootstrap_server() == f"127.0.0.1:{port}"


def test_what_only_a_container_has_is_refused_with_the_reason() -> None:
    kafka = KafkaContainer()
    with pytest.raises(NotImplementedError, match="no container to run"):
        kafka.exec("ls")
    with pytest.raises(NotImplementedError, match="Docker"):
        kafka.with_network(object())
