"""A node's page tells the truth about what clients did to the node."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

import penstock
from penstock.client.client import Client
from penstock.client.connection import open_connection
from penstock.errors import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.world import World
from penstock.world.real import run
from tests.metrics.scrape import Page, scrape, value

RECORD = b"x" * 100


class Node:
    def __init__(self, bootstrap: str, metrics: str) -> None:
        self.bootstrap = bootstrap
        self.metrics = metrics

    def page(self, query: str = "") -> Page:
        return scrape(self.metrics, query)

    def create(self, topic: str, partitions: int = 1) -> None:
        async def create(world: World) -> None:
            async with Client(world, self.bootstrap) as client:
                await client.admin.create_topic(topic, partitions=partitions, replication_factor=1)

        run(create)

    def produce(self, topic: str, count: int, timestamp_ms: int = 0, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for _ in range(count):
            producer.produce(topic, RECORD, partition=partition, timestamp=timestamp_ms)
        assert producer.flush(20) == 0

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[Position(topic, partition, offset)], asynchronous=False)
        consumer.close()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "penstock.metrics.listener": f"http://{metrics}",
        "offsets.topic.num.partitions": "4",
    }
    with penstock.Cluster(settings) as cluster:
        yield Node(cluster.bootstrap_servers, metrics)


def test_a_node_shows_its_roles_quorum_and_process(node: Node) -> None:
    page = node.page()
    assert value(page, "penstock_node_info", node_id="1", roles="broker,controller") == 1
    assert value(page, "penstock_active_controller") == 1
    assert value(page, "penstock_quorum_leader") == 1
    assert value(page, "penstock_metadata_apply_lag") == 0
    assert value(page, "penstock_quorum_high_watermark") > 0
    assert value(page, "penstock_cluster_brokers", state="active") == 1
    assert value(page, "process_open_fds") > 0
    assert value(page, "process_resident_memory_bytes") > 10_000_000
    assert value(page, "penstock_event_loop_delay_seconds_count") > 0
    assert value(page, "penstock_memory_bytes", room="server") >= 0
    assert value(page, "penstock_offline_log_directories") == 0


def test_traffic_is_counted_by_topic(node: Node) -> None:
    node.create("traffic")
    node.produce("traffic", 50)
    page = node.page()
    assert value(page, "penstock_topic_received_messages_total", topic="traffic") == 50
    received = value(page, "penstock_topic_received_bytes_total", topic="traffic")
    assert received > 50 * len(RECORD)
    assert value(page, "penstock_topic_log_bytes", topic="traffic") == received
    assert value(page, "penstock_topic_sent_bytes_total", topic="traffic") == 0
    assert value(page, "penstock_requests_total", api="Produce") >= 1
    assert value(page, "penstock_request_seconds_count", api="Produce") >= 1
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "unused"})
    consumer.assign([Position("traffic", 0, 0)])
    read = 0
    while read < 50:
        read += len(consumer.consume(50, 1.0))
    page = node.page()
    sent = value(page, "penstock_topic_sent_bytes_total", topic="traffic")
    assert value(page, "penstock_connections", listener="PLAINTEXT") >= 1
    consumer.close()
    assert sent == received


def test_errors_are_counted_by_api_and_code(node: Node) -> None:
    async def beat(world: World) -> int:
        host, _colon, port = node.bootstrap.partition(":")
        connection = await open_connection(
            world, host, int(port), client_id="test", connect_timeout_s=10, request_timeout_s=10
        )
        try:
            request = HeartbeatRequest(group_id="nobody", member_id="none")
            return (await connection.call(request, HeartbeatResponse)).error_code
        finally:
            connection.close()

    codes = {run(beat), run(beat)}
    assert ErrorCode.NONE not in codes
    errors = "penstock_request_errors_total"
    page = node.page()
    assert (
        sum(value(page, errors, api="Heartbeat", error=ErrorCode(code).name) for code in codes) == 2
    )
    assert value(page, "penstock_requests_total", api="Heartbeat") == 2


def test_errors_of_produce_and_fetch_are_counted(node: Node) -> None:
    node.create("errors")

    async def ask(world: World) -> None:
        host, _colon, port = node.bootstrap.partition(":")
        connection = await open_connection(
            world, host, int(port), client_id="test", connect_timeout_s=10, request_timeout_s=10
        )
        data = ProduceRequest.TopicData(
            name="missing", partition_data=(ProduceRequest.TopicData.PartitionData(records=b"x"),)
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(data,))
        await connection.call(request, ProduceResponse, max_version=9)
        wanted = FetchRequest.Topic(
            topic="errors",
            partitions=(FetchRequest.Topic.Partition(fetch_offset=99, partition_max_bytes=1),),
        )
        fetch = FetchRequest(max_bytes=1, session_epoch=-1, topics=(wanted,))
        await connection.call(fetch, FetchResponse, max_version=11)
        connection.close()

    run(ask)
    page, errors = node.page(), "penstock_request_errors_total"
    assert value(page, errors, api="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert value(page, errors, api="Fetch", error="OFFSET_OUT_OF_RANGE") == 1


def test_series_of_partitions_are_there_when_asked_for(node: Node) -> None:
    node.create("wide", partitions=3)
    node.produce("wide", 7, partition=2)
    name = "penstock_log_end_offset"
    assert not [key for key in node.page() if key[0] == name]
    page = node.page("?partitions=1")
    ends = [value(page, name, topic="wide", partition=str(index)) for index in range(3)]
    assert ends == [0, 0, 7]
    assert value(page, "penstock_log_start_offset", topic="wide") == 0
    assert value(page, "penstock_in_sync_replicas", topic="wide") == 3


def test_a_delayed_fetch_is_in_purgatory(node: Node) -> None:
    node.create("waited")
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "unused",
            "fetch.wait.max.ms": 20_000,
            "socket.timeout.ms": 60_000,
        }
    )
    consumer.assign([Position("waited", 0, 0)])
    deadline = time.monotonic() + 20
    while value(node.page(), "penstock_purgatory_size", operation="Fetch") < 1:
        consumer.poll(0.05)
        assert time.monotonic() < deadline
    node.produce("waited", 1)
    assert consumer.poll(20) is not None
    page = node.page()
    assert value(page, "penstock_request_remote_seconds_total", api="Fetch") > 0
    consumer.close()


def test_lag_is_the_distance_to_the_high_watermark_and_the_age_of_the_next_record(
    node: Node,
) -> None:
    node.create("lagging", partitions=2)
    now_ms = int(time.time() * 1000)
    for age_s in (600, 300, 60):
        node.produce("lagging", 10, now_ms - age_s * 1000)
    node.produce("lagging", 5, now_ms - 30_000, partition=1)
    node.commit("slow", "lagging", 10)
    node.commit("slow", "lagging", 5, partition=1)
    page = node.page("?partitions=1")
    assert value(page, "penstock_group_lag", group="slow", topic="lagging") == 20
    assert value(page, "penstock_group_lag_max", group="slow") == 20
    assert value(page, "penstock_group_lag_unknown_partitions", group="slow") == 0
    lag_s = value(page, "penstock_group_lag_seconds", group="slow", topic="lagging")
    assert 300 <= lag_s < 330
    assert value(page, "penstock_group_partition_lag_seconds", group="slow", partition="1") == 0
    node.commit("slow", "lagging", 25)
    lag_s = value(node.page(), "penstock_group_lag_seconds", group="slow", topic="lagging")
    assert 60 <= lag_s < 90
    node.commit("slow", "lagging", 30)
    page = node.page()
    assert value(page, "penstock_group_lag", group="slow") == 0
    assert value(page, "penstock_group_lag_seconds", group="slow") == 0
    assert value(page, "penstock_groups", protocol="classic", state="Empty") >= 1


def test_members_states_and_rebalances_of_groups(node: Node) -> None:
    node.create("joined")
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "joiners"})
    consumer.subscribe(["joined"])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    page = node.page()
    assert value(page, "penstock_group_members", group="joiners") == 1
    assert value(page, "penstock_groups", state="Stable") == 1
    assert value(page, "penstock_group_rebalances_total", protocol="classic") >= 1
    consumer.close()


def test_an_open_transaction_has_an_age(node: Node) -> None:
    node.create("exactly")
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "payer"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("exactly", RECORD)
    producer.flush(20)
    page = node.page()
    assert value(page, "penstock_transactions", state="Ongoing") == 1
    assert value(page, "penstock_partitions_with_open_transactions") == 1
    assert 0 <= value(page, "penstock_transaction_oldest_seconds") < 60
    producer.commit_transaction(20)
    deadline = time.monotonic() + 20
    while value(node.page(), "penstock_transactions", state="Ongoing"):
        assert time.monotonic() < deadline
    assert value(node.page(), "penstock_transaction_oldest_seconds") < 1


def test_concurrent_scrapes_are_all_answered(node: Node) -> None:
    pages: list[Page] = []
    threads = [threading.Thread(target=lambda: pages.append(node.page())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(pages) == 4
