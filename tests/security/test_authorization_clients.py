"""Clients that others wrote, with principals of their own, against brokers with an authorizer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock.config.authorizer_settings import STANDARD_AUTHORIZER

pytestmark = pytest.mark.more

USERS = ("admin", "broker", "alice", "bob", "eve")
SETTINGS = {
    # The listener of clients and between brokers is named PLAINTEXT.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="broker" password="broker-secret" '
        + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
        + ";"
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Connections to controllers are plain text. Brokers are not super users to each other: an entry
    # lets them replicate.
    "super.users": "User:admin;User:ANONYMOUS",
    "num.partitions": "1",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # Two of three brokers forward what the active controller decides.
    with penstock.Cluster(SETTINGS, brokers=3) as cluster:
        servers = cluster.bootstrap_servers
        allow(servers, "broker", AclOperation.CLUSTER_ACTION, ResourceType.BROKER, "kafka-cluster")
        yield servers


def settings(servers: str, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def allow(
    servers: str,
    user: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    binding = AclBinding(
        kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )
    admin = AdminClient(settings(servers, "admin"))
    for future in admin.create_acls([binding]).values():
        future.result(30)


def create(servers: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(settings(servers, "admin"))
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    return name


def produced(servers: str, user: str, topic: str, **more: Any) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(settings(servers, user, message_timeout_ms=10_000, **more))
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _message: errors.append(error))
        producer.flush(15)
    except KafkaException as error:
        failure: KafkaError = error.args[0]
        return failure
    return errors[0] if errors else KafkaError(KafkaError._TIMED_OUT)


def test_a_producer_and_a_consumer_with_their_rights(servers: str) -> None:
    topic = create(servers)
    allow(servers, "alice", AclOperation.WRITE, ResourceType.TOPIC, topic)
    assert produced(servers, "alice", topic) is None
    assert produced(servers, "alice", topic, enable_idempotence=True) is None, "KIP-679"
    denied = produced(servers, "eve", topic)
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    idempotent = produced(servers, "eve", topic, enable_idempotence=True)
    assert idempotent is not None
    assert idempotent.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._TIMED_OUT,
        KafkaError._FATAL,
    )
    prefixed = ResourcePatternType.PREFIXED
    allow(servers, "bob", AclOperation.READ, ResourceType.TOPIC, "orders-", prefixed)
    allow(servers, "bob", AclOperation.READ, ResourceType.GROUP, "readers")
    assert consumed(servers, "bob", topic, "readers") == [b"x", b"x"]
    assert consumed(servers, "bob", topic, "others") == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert consumed(servers, "alice", topic, "readers") in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def consumed(servers: str, user: str, topic: str, group: str) -> list[bytes] | int:
    consumer = Consumer(
        settings(
            servers, user, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
    )
    values: list[bytes] = []
    consumer.subscribe([topic])
    try:
        for _poll in range(60):
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                code: int = error.code()
                return code
            values.append(message.value() or b"")
            if len(values) == 2:
                consumer.commit(asynchronous=False)
                return values
    finally:
        consumer.close()
    return values


def test_a_transaction_needs_its_transactional_id(servers: str) -> None:
    topic = create(servers)
    allow(servers, "alice", AclOperation.WRITE, ResourceType.TOPIC, topic)
    denied = Producer(settings(servers, "alice", transactional_id="tx-1"))
    with pytest.raises(KafkaException) as raised:
        denied.init_transactions(10)
    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow(servers, "alice", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx-1")
    producer = Producer(settings(servers, "alice", transactional_id="tx-1"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction")
    producer.commit_transaction(30)


def test_administration_needs_rights_on_the_cluster(servers: str) -> None:
    eve = AdminClient(settings(servers, "eve"))
    with pytest.raises(KafkaException) as raised:
        eve.create_topics([NewTopic("eves", 1, 1)])["eves"].result(30)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    allow(servers, "bob", AclOperation.DESCRIBE, ResourceType.TOPIC, "bobs")
    admin = AdminClient(settings(servers, "admin"))
    assert admin.describe_acls(every).result(30)
    # The response has CLUSTER_AUTHORIZATION_FAILED, which librdkafka does not pass on.
    assert eve.describe_acls(every).result(30) == []
    with pytest.raises(KafkaException) as raised:
        eve.delete_acls([every])[every].result(30)
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_topics_of_others_are_not_listed(servers: str) -> None:
    topic = create(servers)
    assert topic not in AdminClient(settings(servers, "eve")).list_topics(timeout=30).topics
    allow(servers, "eve", AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    listed = AdminClient(settings(servers, "eve")).list_topics(timeout=30).topics
    assert set(listed) == {topic}


def test_kafka_python_sees_the_same_rights(servers: str) -> None:
    topic = create(servers)
    options = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
    }
    alice = {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
    eve = {"sasl_plain_username": "eve", "sasl_plain_password": "eve-secret"}
    allow(servers, "alice", AclOperation.WRITE, ResourceType.TOPIC, topic)
    producer = kafka.KafkaProducer(**options, **alice)
    producer.send(topic, b"x").get(30)
    producer.close()
    denied = kafka.KafkaProducer(**options, **eve, max_block_ms=5_000)
    with pytest.raises(kafka.errors.KafkaError) as raised:
        denied.send(topic, b"x").get(10)
    assert isinstance(
        raised.value,
        kafka.errors.TopicAuthorizationFailedError
        | kafka.errors.ClusterAuthorizationFailedError
        | kafka.errors.KafkaTimeoutError,
    )
    denied.close(timeout=1)
