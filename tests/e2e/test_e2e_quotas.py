"""Client quotas on a real cluster of two brokers, with confluent-kafka's clients.

The brokers measure rates over two windows of a second instead of eleven, so that a few seconds
suffice: what a client gets within t seconds is at most the quota of t + 2 seconds, whatever the
speed of the machine. `make bench ONLY=quotas` measures with Kafka's windows, beside Apache Kafka.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import BrokerResponseError

from penstock.errors import ErrorCode
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import running
from tests.e2e.raw_connection import RawConnection, metadata

pytestmark = pytest.mark.xdist_group("cluster")

QUOTA = 400_000
WINDOWS_S = 2
TOLERATED = 1.15
SECONDS = 4.0
VALUE = b"x" * 10_000
# The client id of a RawConnection.
RAW = "raw"

Entry = AlterClientQuotasRequest.Entry
Described = dict[frozenset[tuple[str, str | None]], dict[str, float]]


class Quotas:
    """Alters quotas by connections that exist before any quota does."""

    def __init__(self, cluster: PenstockCluster, connections: list[RawConnection]) -> None:
        self.cluster = cluster
        self._connections = connections

    def set(self, values: dict[str, float | None], **entity: str | None) -> None:
        """Set or remove quotas, and wait until all brokers have them."""
        parts = {kind.replace("_", "-"): name for kind, name in entity.items()}
        request = AlterClientQuotasRequest(
            entries=(
                Entry(
                    entity=tuple(
                        Entry.Entity(entity_type=kind, entity_name=name)
                        for kind, name in parts.items()
                    ),
                    ops=tuple(
                        Entry.Op(key=key, value=value or 0.0, remove=value is None)
                        for key, value in values.items()
                    ),
                ),
            )
        )
        response = self._connections[0].request(request, 1, AlterClientQuotasResponse)
        assert [entry.error_code for entry in response.entries] == [0]
        key = frozenset(parts.items())
        for connection in self._connections:
            wait_for(
                lambda connection=connection: described(connection).get(key, {}),  # type: ignore[misc]
                lambda found: all(found.get(name) == value for name, value in values.items()),
                f"quotas of {parts}",
            )


def described(connection: RawConnection) -> Described:
    response = connection.request(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse)
    assert response.error_code == 0
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


@pytest.fixture(scope="module")
def quotas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quotas]:
    directory = tmp_path_factory.mktemp("quotas")
    settings = [f"quota.window.num={WINDOWS_S}"]
    with (
        running(PenstockCluster(directory, *settings, brokers=2, controllers=1)) as cluster,
        ExitStack() as stack,
    ):
        connections = [
            stack.enter_context(RawConnection(f"127.0.0.1:{cluster.port + number}"))
            for number in range(2)
        ]
        yield Quotas(cluster, connections)


def produce_for(bootstrap: str, client_id: str, topic: str, seconds: float) -> tuple[int, float]:
    """Produce as fast as possible. Return the acknowledged bytes, and the time."""
    acknowledged = 0

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        assert error is None, (error, message)
        acknowledged += len(VALUE)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 50_000}
    )
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            producer.produce(topic, VALUE, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.poll(0)
    result = acknowledged, time.monotonic() - began
    producer.purge()
    return result


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "filler", "acks": "all"})
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(30) == 0


def most(seconds: float) -> float:
    return QUOTA * (seconds + WINDOWS_S) * TOLERATED


def test_a_producer_is_held_to_its_quota_and_others_are_not(quotas: Quotas) -> None:
    cluster = quotas.cluster
    cluster.create_topic("produced", [[1]])
    quotas.set({"producer_byte_rate": QUOTA}, client_id="slow-producer")
    slow, slow_s = produce_for(cluster.bootstrap, "slow-producer", "produced", SECONDS)
    assert QUOTA < slow <= most(slow_s)
    # Another client of the same broker writes more in a second than that one in all.
    fast, _fast_s = produce_for(cluster.bootstrap, "fast-producer", "produced", 1.0)
    assert fast > slow


def test_a_muted_connection_does_not_stop_other_clients(quotas: Quotas) -> None:
    cluster = quotas.cluster
    cluster.create_topic("muted", [[1]])
    quotas.set({"request_percentage": 1e-6}, client_id=RAW)
    try:
        with RawConnection(f"127.0.0.1:{cluster.port}") as muted:
            for _ in range(100):
                if metadata(muted).throttle_time_ms:
                    break
            # It is muted for a second at most. Others are served meanwhile.
            fill(cluster.bootstrap, "muted", 10)
            assert metadata(muted).brokers
    finally:
        quotas.set({"request_percentage": None}, client_id=RAW)


def test_a_consumer_is_held_to_its_quota(quotas: Quotas) -> None:
    cluster = quotas.cluster
    cluster.create_topic("consumed", [[1]])
    fill(cluster.bootstrap, "consumed", 1_200)
    quotas.set({"consumer_byte_rate": QUOTA}, client_id="slow-consumer")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "slow-consumer",
            "group.id": "unused",
            "fetch.max.bytes": 100_000,
            "message.max.bytes": 100_000,
            "max.partition.fetch.bytes": 100_000,
        }
    )
    consumer.assign([TopicPartition("consumed", 0, 0)])
    began, read = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < SECONDS:
        read += sum(len(message.value() or b"") for message in consumer.consume(1_000, 0.05))
    # librdkafka asks again after each empty response, and gets everything in the end.
    while read < 2 * QUOTA:
        elapsed = time.monotonic() - began
        assert elapsed < 60
        read += sum(len(message.value() or b"") for message in consumer.consume(1_000, 0.5))
    assert read <= most(elapsed)
    consumer.close()


def test_followers_are_not_throttled(quotas: Quotas) -> None:
    cluster = quotas.cluster
    cluster.create_topic("replicated", [[1, 2]], min_insync_replicas="2")
    cluster.wait_partition("replicated", lambda partition: len(partition.isr) == 2)
    default: dict[str, float | None] = {"consumer_byte_rate": 1_000, "request_percentage": 0.001}
    quotas.set(default, user=None)
    quotas.set({"request_percentage": 10_000}, user=None, client_id="filler")
    quotas.set({"request_percentage": 10_000}, user=None, client_id=RAW)
    try:
        # At a kilobyte per second these 5 MB would take more than an hour.
        fill(cluster.bootstrap, "replicated", 500)
    finally:
        quotas.set(dict.fromkeys(default), user=None)
        quotas.set({"request_percentage": None}, user=None, client_id="filler")
        quotas.set({"request_percentage": None}, user=None, client_id=RAW)
    partition = cluster.partition("replicated")
    assert sorted(partition.isr) == [1, 2]


def test_topics_beyond_the_mutation_quota_are_refused(quotas: Quotas) -> None:
    cluster = quotas.cluster
    quotas.set({"controller_mutation_rate": 1}, client_id="creator")
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap, client_id="creator")
    assert created(admin, "many", 100) == 0
    assert created(admin, "more", 1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # Other clients create it.
    other = KafkaAdminClient(bootstrap_servers=cluster.bootstrap, client_id="other")
    assert created(other, "more", 1) == 0
    admin.close()
    other.close()


def created(admin: KafkaAdminClient, name: str, partitions: int) -> int:
    """Create a topic and return the error code."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
    try:
        admin.create_topics([topic])
    except BrokerResponseError as error:
        return int(error.errno)
    return 0


def test_old_versions_are_throttled_instead(quotas: Quotas) -> None:
    """The active controller has the quota, whichever broker forwards to it."""
    quotas.set({"controller_mutation_rate": 100}, client_id=RAW)
    ports = [quotas.cluster.port, quotas.cluster.port + 1]
    try:
        with (
            RawConnection(f"127.0.0.1:{ports[0]}") as first,
            RawConnection(f"127.0.0.1:{ports[1]}") as second,
        ):
            assert old_creation(first, "old", 1_000) == (0, 0)
            began = time.monotonic()
            deletion = DeleteTopicsRequest(topic_names=("old",), timeout_ms=30_000)
            deleted = first.request(deletion, 4, DeleteTopicsResponse)
            assert [each.error_code for each in deleted.responses] == [0]
            assert deleted.throttle_time_ms > 5_000
            code, throttle_ms = old_creation(second, "older", 1)
            assert (code, throttle_ms > 3_000) == (0, True)
            # Both were answered before the connections were muted.
            assert time.monotonic() - began < 5
    finally:
        quotas.set({"controller_mutation_rate": None}, client_id=RAW)


def old_creation(connection: RawConnection, name: str, partitions: int) -> tuple[int, int]:
    """Create a topic, and return the error code and the throttle time."""
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
    response = connection.request(request, 5, CreateTopicsResponse)
    return response.topics[0].error_code, response.throttle_time_ms


def test_an_address_opens_connections_at_its_rate(quotas: Quotas) -> None:
    quotas.set({"connection_creation_rate": 1}, ip="127.0.0.1")
    try:
        with ExitStack() as stack:
            for number in itertools.count():
                assert number < 50
                try:
                    connection = stack.enter_context(
                        RawConnection(f"127.0.0.1:{quotas.cluster.port}")
                    )
                    assert metadata(connection).brokers
                except ConnectionError:
                    break
            # A window of a second is allowed at once.
            assert number >= 1
    finally:
        quotas.set({"connection_creation_rate": None}, ip="127.0.0.1")
    with RawConnection(f"127.0.0.1:{quotas.cluster.port}") as connection:
        assert metadata(connection).brokers
