"""A real Prometheus scrapes a cluster of three; every alert fires when its fault is made; every
query of the dashboard returns data."""

from __future__ import annotations

import json
import re
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from penstock.client.client import Client
from penstock.client.errors import check
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import build_batch
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import COMMAND, running
from tests.e2e.slow_calls import SYNCS, VOLUMES, needs_strace, slow_calls
from tests.metrics.prometheus import FILES, Prometheus, needs_prometheus, quick_rules
from tests.metrics.scrape import scrape, value

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("cluster"), needs_prometheus]

# What a test cannot wait for, or cannot fill.
THRESHOLDS = {"oldest_seconds) > 900": "oldest_seconds) > 2"}
MAX_TOPICS = 30
SETTINGS = (
    "log.dirs=one,two",
    "metadata.log.dir=meta",
    "log.segment.bytes=1048576",
    "max.connections.per.ip=60",
    "auto.leader.rebalance.enable=false",
    "transaction.partition.verification.enable=false",
    f"penstock.metrics.max.topics={MAX_TOPICS}",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path_factory.mktemp("cluster"), *SETTINGS)) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(
    cluster: PenstockCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    targets = [node["metrics"] for node in cluster.list()]
    directory = tmp_path_factory.mktemp("prometheus") / "server"
    with Prometheus(directory, targets, quick_rules(THRESHOLDS)) as started:
        yield started


def produce(cluster: PenstockCluster, topic: str, count: int = 10, age_s: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "acks": "1"})
    timestamp = int(time.time() * 1000) - age_s * 1000
    for _ in range(count):
        producer.produce(topic, b"x" * 100, partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_promtool_accepts_the_page_and_the_rules(cluster: PenstockCluster) -> None:
    from urllib.request import urlopen

    for node in cluster.list():
        with urlopen(f"http://{node['metrics']}/metrics?partitions=1", timeout=20) as response:
            page = response.read()
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    subprocess.run(["promtool", "check", "rules", str(FILES / "alerts.yml")], check=True)


def test_every_alert_has_a_test() -> None:
    names = re.findall(r"alert: (\w+)", (FILES / "alerts.yml").read_text())
    text = Path(__file__).read_text()
    assert [name for name in names if f'"{name}"' not in text] == []


def test_prometheus_scrapes_all_nodes_and_a_healthy_cluster_fires_nothing(
    cluster: PenstockCluster, prometheus: Prometheus
) -> None:
    cluster.create_topic("healthy", [[1, 2, 3]])
    produce(cluster, "healthy")
    prometheus.wait(
        lambda: [each["value"][1] for each in prometheus.query("up")] == ["1"] * 3,
        "not all nodes are up",
    )
    prometheus.wait(
        lambda: prometheus.query("sum(penstock_received_messages_total) >= 10"),
        "the produced records are not counted",
    )
    assert [each["value"][1] for each in prometheus.query("sum(penstock_active_controller)")] == [
        "1"
    ]
    time.sleep(3)  # several evaluations of all rules
    # Alerts of this machine, which may be full or busy: the rules do not wait 5 minutes here.
    of_machine = {"PenstockDiskAlmostFull", "PenstockEventLoopBlocked"}
    assert set(prometheus.firing()) <= of_machine


def test_every_query_of_the_dashboard_returns_data(
    cluster: PenstockCluster, prometheus: Prometheus
) -> None:
    cluster.create_topic("shown", [[1, 2, 3]])
    produce(cluster, "shown", 100)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "viewers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["shown"])
    read = 0
    deadline = time.monotonic() + 60
    while read < 50:
        read += len(consumer.consume(10, 1.0))
        assert time.monotonic() < deadline
    consumer.commit(asynchronous=False)
    with suppress(KafkaException):
        consumer.get_watermark_offsets(Position("missing", 0), timeout=2)
    panels = json.loads((FILES / "grafana.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(queries) > 40
    for query in queries:
        expression = query.replace("$__rate_interval", "1m")
        prometheus.wait(
            lambda expression=expression: prometheus.query(expression), f"{expression} has no data"
        )
    consumer.close()


def test_lag_alert(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    cluster.create_topic("lagging", [[1, 2, 3]])
    produce(cluster, "lagging", age_s=600)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "stopped"})
    consumer.commit(offsets=[Position("lagging", 0, 3)], asynchronous=False)
    consumer.close()
    prometheus.wait_firing("PenstockGroupLag")
    (found,) = prometheus.query('penstock_group_lag{group="stopped",topic="lagging"}')
    assert found["value"][1] == "7"


def test_lag_of_partitions_that_the_coordinator_does_not_have(cluster: PenstockCluster) -> None:
    """One replica each: most are not on the coordinator, which asks the leaders. The records are
    older than the first scrape."""
    cluster.create_topic("spread", [[1], [2], [3]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    before_ms = int(time.time() * 1000) - 600_000
    for index in range(3):
        for _ in range(10):
            producer.produce("spread", b"x", partition=index, timestamp=before_ms)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "asker"})
    offsets = [Position("spread", index, index) for index in range(3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    pages = [scrape(node["metrics"], "?partitions=1") for node in cluster.list()]
    lags, seconds = (
        {
            dict(labels)["partition"]: found
            for page in pages
            for (name, labels), found in page.items()
            if name == measure and dict(labels)["group"] == "asker"
        }
        for measure in ("penstock_group_partition_lag", "penstock_group_partition_lag_seconds")
    )
    assert lags == {"0": 10, "1": 9, "2": 8}
    assert [600 <= seconds[index] < 700 for index in "012"] == [True] * 3


def test_transaction_alert(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    cluster.create_topic("paid", [[1, 2, 3]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "payer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("paid", b"x")
    producer.flush(30)
    prometheus.wait_firing("PenstockHangingTransaction")
    producer.abort_transaction(30)
    prometheus.wait_resolved("PenstockHangingTransaction")


def test_alert_of_a_transaction_that_no_coordinator_ends(
    cluster: PenstockCluster, prometheus: Prometheus
) -> None:
    """The hang of KIP-664: a batch arrives after its transaction was completed, and the leader does
    not verify it. The batch opens a transaction in the log, and its coordinator, which has written
    all markers, does not know that."""
    cluster.create_topic("late", [[1, 2, 3]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "late-payer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("late", b"in time", partition=0)
    producer.commit_transaction(30)
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    cluster.ask(lambda client: append_late(client, "late-payer", "late", hour_ago_ms))
    prometheus.wait_firing("PenstockHangingTransaction")
    late = "sum(penstock_partitions_with_late_transactions)"
    assert [each["value"][1] for each in prometheus.query(late)] == ["1"]
    oldest = "max(penstock_transaction_oldest_seconds)"
    assert [each["value"][1] for each in prometheus.query(oldest)] == ["0"]

    named = doctor(cluster.bootstrap)["transaction-hanging"]
    assert re.fullmatch(
        r"a transaction of producer \d+ hangs: no coordinator knows it, so nothing ends it: "
        r"read_committed consumers wait in late-0 from offset 2",
        named["summary"],
    )
    (todo,) = named["todo"]
    assert todo == "penstock transactions abort --topic late --partition 0 --start-offset 2"
    cluster.command(*todo.split()[1:], "--yes", "--bootstrap-server", cluster.bootstrap)
    assert "transaction-hanging" not in doctor(cluster.bootstrap)
    prometheus.wait_resolved("PenstockHangingTransaction")


async def append_late(client: Client, transactional_id: str, topic: str, timestamp: int) -> None:
    """Send the second batch of a producer, in the epoch of the transaction that it has completed.
    Its timestamp is old: nobody waits for transaction.max.timeout.ms in a test."""
    # EndTxn is answered when the transaction is prepared; its markers follow.
    completed = await client.admin.describe_transaction(transactional_id)
    while completed.state == "PrepareCommit":
        completed = await client.admin.describe_transaction(transactional_id)
    assert completed.state == "CompleteCommit"
    records = build_batch(
        [(None, b"late", (), timestamp)],
        producer_id=completed.producer_id,
        producer_epoch=completed.producer_epoch,
        base_sequence=1,
        transactional=True,
    )
    data = ProduceRequest.TopicData.PartitionData(index=0, records=records)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=(ProduceRequest.TopicData(name=topic, partition_data=(data,)),),
    )
    (found,) = await client.cluster.topics([topic])
    connection = await client.cluster.broker(found.partitions[0].leader)
    response = await connection.call(request, ProduceResponse, max_version=11)
    check(response.responses[0].partition_responses[0].error_code, "not written")


def doctor(bootstrap: str, *words: str) -> dict[str, Any]:
    """Return the findings by their codes."""
    line = [str(COMMAND), "doctor", "--bootstrap-server", bootstrap, "--over", "0", "--json"]
    done = subprocess.run([*line, *words], capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_connections_alert(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    with ExitStack() as stack:
        for _ in range(80):
            opened = stack.enter_context(socket.socket())
            opened.connect(("127.0.0.1", cluster.port))
        prometheus.wait_firing("PenstockConnectionsRefused")


def test_open_files_alert(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    node = cluster.list()[0]
    before = resource.prlimit(node["pid"], resource.RLIMIT_NOFILE)
    opened = value(scrape(node["metrics"]), "process_open_fds")
    resource.prlimit(node["pid"], resource.RLIMIT_NOFILE, (int(opened * 1.15), before[1]))
    try:
        prometheus.wait_firing("PenstockTooManyOpenFiles")
    finally:
        resource.prlimit(node["pid"], resource.RLIMIT_NOFILE, before)


def test_event_loop_alert(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    cluster.nodes("pause", "3")
    time.sleep(3)
    cluster.nodes("resume", "3")
    prometheus.wait_firing("PenstockEventLoopBlocked")


def test_alert_of_topics_that_are_not_on_the_page(
    cluster: PenstockCluster, prometheus: Prometheus
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in range(MAX_TOPICS + 1):
        cluster.create_topic(f"many-{number}", [[1, 2, 3]])
        producer.produce(f"many-{number}", b"x", partition=0)
    assert producer.flush(30) == 0
    prometheus.wait_firing("PenstockMetricsIncomplete")
    (dropped,) = prometheus.query("max(penstock_metrics_dropped_names)")
    assert float(dropped["value"][1]) >= 1


def test_damage_and_directory_alerts(cluster: PenstockCluster, prometheus: Prometheus) -> None:
    cluster.create_topic("damaged", [[1]] * 4)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for index in range(4):
        for _ in range(1_200):
            producer.produce("damaged", b"x" * 1_000, partition=index)
        assert producer.flush(30) == 0
    home = cluster.directory / "1"
    segment = sorted(home.glob("one/damaged-*/*.log"))[0]
    with segment.open("r+b") as file:
        file.write(b"\xff" * 4_096)
    index = int(re.findall(r"damaged-(\d)", str(segment))[0])
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "finder"})
    consumer.assign([Position("damaged", index, 0)])
    consumer.poll(3)
    consumer.close()
    prometheus.wait_firing("PenstockDamagedLog")
    # As with a failed disk, no file of the other directory can be opened.
    (home / "two").rename(home / "taken-away")
    (home / "two").write_text("not a directory")
    for index in range(4):
        for _ in range(1_200):
            producer.produce("damaged", b"x" * 1_000, partition=index)
    producer.flush(5)
    producer.purge()
    prometheus.wait_firing("PenstockLogDirectoryOffline")


def test_alerts_of_a_dead_broker_and_of_a_lost_quorum(
    cluster: PenstockCluster, prometheus: Prometheus
) -> None:
    """Last: it destroys the cluster."""
    leader = cluster.quorum_leader()
    first, second = (node for node in (1, 2, 3) if node != leader)
    cluster.create_topic("alone", [[first]])
    cluster.create_topic("strict", [[leader, first, second]], min_insync_replicas="3")
    cluster.create_topic("unclean", [[first, second]], unclean_leader_election_enable="true")
    cluster.wait_partition("unclean", lambda partition: len(partition.isr) == 2)
    # A follower that is not in sync becomes the leader.
    cluster.nodes("pause", str(second))
    cluster.wait_partition("unclean", lambda partition: list(partition.isr) == [first])
    produce(cluster, "unclean")
    cluster.nodes("kill", str(first))
    prometheus.wait_firing("PenstockNodeDown", "PenstockNoActiveController")
    cluster.nodes("resume", str(second))
    prometheus.wait_firing(
        "PenstockOfflinePartitions",
        "PenstockUnderMinIsr",
        "PenstockUnderReplicated",
        "PenstockFencedBroker",
        "PenstockUncleanElection",
        "PenstockQuorumVoterSilent",
    )


def test_disk_alert(tmp_path: Path) -> None:
    """A node whose log directory is on a small volume of its own."""
    from tests.e2e.penstock_process import PenstockProcess

    volume = tmp_path / "volume"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(volume)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a volume: {mounted.stderr.decode().strip()}")
    try:
        with running(PenstockProcess(volume)) as node:
            (volume / "filler").write_bytes(bytes(23 * 1024 * 1024))
            address = metrics_of(volume)
            with Prometheus(tmp_path / "server", [address], quick_rules({})) as prometheus:
                prometheus.wait_firing("PenstockDiskAlmostFull")
            assert node is not None
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=True)


@needs_strace
def test_slow_disk_alerts(tmp_path: Path) -> None:
    """A scrape waits a second for the disk, so that Prometheus waits longer than in other tests."""
    from tests.e2e.penstock_process import PenstockProcess

    with running(PenstockProcess(tmp_path)) as node:
        address = metrics_of(tmp_path)
        settings = ("--partitions", "1", "--config", "flush.messages=1")
        line = [str(COMMAND), "topics", "create", "synced", *settings]
        subprocess.run([*line, "--bootstrap-server", node.bootstrap], check=True)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        with (
            Prometheus(tmp_path / "server", [address], quick_rules({}), "2s") as prometheus,
            slow_calls(node.pid, 1.5, *SYNCS, *VOLUMES),
        ):

            def is_firing() -> bool:
                producer.produce("synced", b"x")
                producer.poll(0)
                return {"PenstockDiskStalled", "PenstockDiskSlow"} <= set(prometheus.firing())

            prometheus.wait(is_firing, lambda: f"only {set(prometheus.firing())} fire")
            stalled = doctor(node.bootstrap, "--metrics", address)["disk-stalled"]
            assert "the disk of broker 1 does not answer: a read of " in stalled["summary"]
        assert producer.flush(30) == 0


def metrics_of(directory: Path) -> str:
    """Return where the node of a directory serves its metrics."""
    text = (directory / "data" / "1" / "server.properties").read_text()
    found: str = re.findall(r"penstock\.metrics\.listener=http://(.*)", text)[0]
    return found
