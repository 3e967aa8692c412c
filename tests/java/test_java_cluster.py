"""Apache Kafka's tools and our scripts of the same names print the same of a cluster.

The cluster is `penstock up --brokers 3`, with all brokers and with some killed. Run by `make
test-java`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.metadata import PartitionInfo
from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import COMMAND, running
from tests.java.kafka_tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    FEATURES,
    LEADER_ELECTION,
    QUORUM,
    TOPICS,
    Ended,
    Tools,
)
from tests.java.verifiable_producer import VerifiableProducer

pytestmark = pytest.mark.java

OURS = {
    TOPICS: "kafka-topics.sh",
    CONFIGS: "kafka-configs.sh",
    QUORUM: "kafka-metadata-quorum.sh",
    LEADER_ELECTION: "kafka-leader-election.sh",
}
FILTERS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)
STATUS = ("describe", "--status")
REPLICATION = ("describe", "--replication")
ELR = "eligible.leader.replicas.version"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(cluster: PenstockCluster) -> Tools:
    return Tools(cluster.bootstrap)


def ours(tools: Tools, tool: str, *arguments: str) -> Ended:
    """Run Penstock's script instead of Kafka's tool."""
    command = [str(COMMAND.parent / OURS[tool]), *tools.addressed(tool, *arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def output_of_both(tools: Tools, tool: str, *arguments: str) -> str:
    theirs = tools(tool, *arguments)
    assert ours(tools, tool, *arguments) == Ended(0, theirs, "")
    return theirs


@contextmanager
def without(cluster: PenstockCluster, broker: int, *, topic: str) -> Iterator[None]:
    """Kill a broker and wait until it has left the ISR of the topic's partitions; restart it
    afterwards."""

    async def partitions(client: Client) -> Sequence[PartitionInfo]:
        return (await client.admin.describe_partitions([topic]))[0].partitions

    def wait(condition: Callable[[PartitionInfo], bool]) -> None:
        wait_for(
            lambda: cluster.ask(partitions),
            lambda found: all(map(condition, found)),
            topic,
            cluster.logs,
        )

    cluster.nodes("kill", str(broker))
    wait(lambda partition: broker not in partition.isr)
    yield
    cluster.nodes("restart", str(broker))
    wait(lambda partition: len(partition.isr) == len(partition.replicas))


def line(
    topic: str, partition: int, leader: str, replicas: str, isr: str, elr: str = "", last: str = ""
) -> str:
    fields = (
        f"Partition: {partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}\tElr: "
        f"{elr}\tLastKnownElr: {last}"
    )
    return f"\tTopic: {topic}\t{fields}\n"


def test_topics_are_described_alike_with_a_broker_killed(
    cluster: PenstockCluster, tools: Tools
) -> None:
    tools.create(
        "orders",
        "--partitions",
        "3",
        "--replication-factor",
        "3",
        "--config",
        "retention.ms=100000",
        "--config",
        "segment.ms=5000",
    )
    tools.create(
        "pair",
        "--replica-assignment",
        "1:2,2:3",
        "--config",
        "min.insync.replicas=2",
        "--config",
        "cleanup.policy=compact",
    )
    tools.create("alone", "--replica-assignment", "2,1")
    whole = output_of_both(tools, TOPICS, "--describe")
    assert sorted(re.findall(r"Topic: orders\tPartition: \d\tLeader: (\d)", whole)) == [
        "1",
        "2",
        "3",
    ]
    with without(cluster, 2, topic="orders"):
        cluster.wait_partition("alone", lambda partition: partition.leader == -1)
        assert output_of_both(tools, TOPICS, "--describe") != whole
        assert (
            output_of_both(tools, TOPICS, "--describe", "--topic", "orders").count("\tIsr: 1,3\t")
            >= 1
        )
        found = {flag: output_of_both(tools, TOPICS, "--describe", flag) for flag in FILTERS}
    offline = line("alone", 0, "none", "2", "", "2", "2")
    below = line("pair", 0, "1", "1,2", "1", "2") + line("pair", 1, "3", "2,3", "3", "2")
    assert found["--unavailable-partitions"] == offline
    assert found["--under-min-isr-partitions"] == offline + below
    assert found["--at-min-isr-partitions"] == line("alone", 1, "1", "1", "1")
    under_replicated = found["--under-replicated-partitions"]
    assert under_replicated.startswith(offline)
    assert under_replicated.endswith(below)
    assert under_replicated.count("\tTopic: orders\t") == 3


def test_a_replication_factor_above_the_number_of_brokers_is_refused(tools: Tools) -> None:
    refused = ["--create", "--topic", "four", "--replication-factor", "4"]
    theirs, own = tools.run(TOPICS, *refused), ours(tools, TOPICS, *refused)
    assert (theirs.code, own.code) == (1, 1)
    assert theirs.stdout.startswith(
        "Error while executing topic command : Unable to replicate the partition 4 time(s): The "
        "target replication factor of 4 cannot be "
        "reached because only 3 broker(s) are registered or some brokers have all their log "
        "directories cordoned.\n"
    )
    assert own.stdout.splitlines()[0] == theirs.stdout.splitlines()[0]


def test_the_quorum_is_described_alike(cluster: PenstockCluster, tools: Tools) -> None:
    leader = str(cluster.quorum_leader())
    status, own_status = (
        re.sub(r"(?<=LagTimeMs:   )\d+", "some", output)
        for output in (tools(QUORUM, *STATUS), ours(tools, QUORUM, *STATUS).stdout)
    )
    assert own_status == status
    assert re.findall(r"^LeaderId: +(\d+)$", status, re.MULTILINE) == [leader]
    assert re.findall(
        r'\{"id": (\d), "endpoints": \["CONTROLLER://127\.0\.0\.1:\d+"\]\}', status
    ) == ["1", "2", "3"]
    theirs, own = (
        re.sub(r"\b\d{13}\b", "when", output)
        for output in (tools(QUORUM, *REPLICATION), ours(tools, QUORUM, *REPLICATION).stdout)
    )
    assert own == theirs
    roles = [
        (row[0].strip(), row[3].strip(), row[6].strip())
        for row in (text.split("\t") for text in theirs.splitlines()[1:])
    ]
    assert roles == [
        (leader, "0", "Leader"),
        *((node, "0", "Follower") for node in ("1", "2", "3") if node != leader),
    ]


def test_controllers_answer_as_kafkas_do(tools: Tools) -> None:
    """Kafka's tools reach the cluster by --bootstrap-controller (KIP-919)."""
    status = tools(QUORUM, *STATUS)
    addresses = re.findall(r"CONTROLLER://(127\.0\.0\.1:\d+)", status)
    assert len(addresses) == 3
    by_controllers = Tools(addresses[-1], "--bootstrap-controller")
    leader = re.findall(r"^LeaderId: +\d+$", status, re.MULTILINE)
    assert leader == re.findall(r"^LeaderId: +\d+$", by_controllers(QUORUM, *STATUS), re.MULTILINE)
    tools.create("by-controllers")
    change = ("--alter", "--topic", "by-controllers", "--add-config", "retention.ms=1000")
    output_of_both(by_controllers, CONFIGS, *change)
    output_of_both(by_controllers, CONFIGS, "--describe", "--broker-defaults")
    assert "Feature: metadata.version" in by_controllers(FEATURES, "describe")
    for ended in (by_controllers.run, partial(ours, by_controllers)):
        refused = ended(CONFIGS, "--describe", "--entity-type", "topics")
        assert refused.code == 1
        assert "UnsupportedEndpointTypeException: This Admin API is not yet" in refused.stderr


def test_preferred_and_unclean_leaders_are_elected(cluster: PenstockCluster, tools: Tools) -> None:
    tools.create("led", "--replica-assignment", "2:3")

    def elect(kind: str) -> Ended:
        return tools.run(
            LEADER_ELECTION, "--election-type", kind, "--topic", "led", "--partition", "0"
        )

    with without(cluster, 2, topic="led"):
        refused = elect("preferred")
        assert refused.code == 1
        assert refused.stdout.startswith(
            "Error completing leader election (PREFERRED) for partition: led-0: "
        )
        assert (
            "PreferredLeaderNotAvailableException: The preferred leader was not available."
            in refused.stdout
        )
    assert cluster.partition("led").leader == 3
    assert elect("preferred") == Ended(
        0, "Successfully completed leader election (PREFERRED) for partitions led-0\n", ""
    )
    cluster.wait_partition("led", lambda partition: partition.leader == 2)
    assert elect("preferred") == Ended(
        0, "Valid replica already elected for partitions led-0\n", ""
    )
    cluster.nodes("kill", "3")
    cluster.wait_partition("led", lambda partition: partition.isr == (2,))
    cluster.nodes("kill", "2")
    cluster.nodes("restart", "3")
    cluster.wait_partition("led", lambda partition: partition.leader == -1)
    assert elect("unclean") == Ended(
        0, "Successfully completed leader election (UNCLEAN) for partitions led-0\n", ""
    )
    cluster.wait_partition("led", lambda partition: partition.leader == 3)
    cluster.nodes("restart", "2")
    cluster.wait_partition("led", lambda partition: sorted(partition.isr) == [2, 3])


def test_configs_of_topics_brokers_and_all_brokers(tools: Tools) -> None:
    tools.create("set", "--replication-factor", "3")
    topic, brokers = (
        ["--entity-type", "topics", "--entity-name", "set"],
        ["--entity-type", "brokers"],
    )
    third, every = [*brokers, "--entity-name", "3"], [*brokers, "--entity-default"]
    assert (
        tools(CONFIGS, "--alter", *topic, "--add-config", "max.message.bytes=5000")
        == "Completed updating config for topic set.\n"
    )
    changed = "Completed updating default config for brokers in the cluster.\n"
    assert tools(CONFIGS, "--alter", *every, "--add-config", "message.max.bytes=7000") == changed
    layers = (
        "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=7000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588"
    )
    assert f"DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, {layers}" in output_of_both(
        tools, CONFIGS, "--describe", *topic
    )
    assert (
        tools(CONFIGS, "--alter", *third, "--add-config", "message.max.bytes=6000")
        == "Completed updating config for broker 3.\n"
    )
    assert f"DYNAMIC_BROKER_CONFIG:message.max.bytes=6000, {layers}" in output_of_both(
        tools, CONFIGS, "--describe", *third
    )
    assert "\n  message.max.bytes=7000 sensitive=false " in output_of_both(
        tools, CONFIGS, "--describe", *every
    )
    output_of_both(tools, CONFIGS, "--describe", *third, "--all")
    tools(CONFIGS, "--alter", *third, "--delete-config", "message.max.bytes")
    tools(CONFIGS, "--alter", *every, "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in output_of_both(tools, CONFIGS, "--describe", *brokers)


def test_features_are_described_and_changed(tools: Tools) -> None:
    assert tools(FEATURES, "disable", "--feature", ELR) == f"{ELR} was disabled.\n"
    assert levels(tools) == {
        ELR: ("0", "1", "0"),
        "group.version": ("0", "1", "1"),
        "kraft.version": ("0", "1", "0"),
        "metadata.version": ("4.3-IV0", "4.3-IV0", "4.3-IV0"),
        "transaction.version": ("0", "2", "2"),
    }
    assert tools(FEATURES, "upgrade", "--feature", f"{ELR}=1") == f"{ELR} was upgraded to 1.\n"
    assert levels(tools)[ELR] == ("0", "1", "1")
    refused = tools.run(FEATURES, "upgrade", "--feature", "no.such=1")
    assert refused.code == 1
    assert re.fullmatch(
        r"Could not upgrade no\.such to 1\. Invalid update version 1 for feature no\.such\. "
        r"Local controller [123] does not support this feature\.\n",
        refused.stdout,
    )


def levels(tools: Tools) -> dict[str, tuple[str, str, str]]:
    """Return the supported minimum and maximum and the finalized level of each feature."""
    pattern = (
        r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: "
        r"(\S+)\s+FinalizedVersionLevel: (\S+)\s+Epoch: \d+"
    )
    found = [re.fullmatch(pattern, text) for text in tools(FEATURES, "describe").splitlines()]
    return {match[1]: (match[2], match[3], match[4]) for match in found if match}


def test_every_broker_reports_its_api_versions(cluster: PenstockCluster, tools: Tools) -> None:
    brokers = re.split(r"(?m)^\)\n", tools(API_VERSIONS))
    assert brokers.pop() == ""
    heads = {text.split(" -> ")[0] for text in brokers}
    assert heads == {
        f"127.0.0.1:{cluster.port + broker - 1} (id: {broker} rack: null isFenced: false)"
        for broker in (1, 2, 3)
    }
    assert len({text.split(" -> ")[1] for text in brokers}) == 1
    assert "UNKNOWN" not in brokers[0]


def test_a_broker_is_added_killed_and_unregistered(cluster: PenstockCluster, tools: Tools) -> None:
    def endpoints() -> list[tuple[str, str]]:
        rows = [
            text.split()
            for text in tools(CLUSTER, "list-endpoints", "--include-fenced-brokers").splitlines()[
                1:
            ]
        ]
        return [(row[0], row[4]) for row in rows]

    three = [("1", "unfenced"), ("2", "unfenced"), ("3", "unfenced")]
    assert cluster.nodes("add") == "4\n"
    assert endpoints() == [*three, ("4", "unfenced")]
    cluster.nodes("kill", "4")
    wait_for(endpoints, lambda seen: seen == [*three, ("4", "fenced")], "broker 4", cluster.logs)
    assert tools(CLUSTER, "unregister", "--id", "4") == "Broker 4 is no longer registered.\n"
    assert endpoints() == three
    again = tools.run(CLUSTER, "unregister", "--id", "4")
    assert (again.code, again.stdout) == (1, "")
    assert "BrokerIdNotRegisteredException: Broker ID 4 is not currently registered" in again.stderr


def test_the_verifiable_producer_loses_nothing_when_leaders_are_killed(
    cluster: PenstockCluster, tools: Tools, tmp_path: Path
) -> None:
    """A leader, then the active controller, is killed and restarted while Kafka's producer
    runs. Kafka's consumer finds every acknowledged number at its acknowledged offset, once and in
    order."""
    partitions, count = 3, 30_000
    tools.create(
        "numbers",
        "--partitions",
        str(partitions),
        "--replication-factor",
        "3",
        "--config",
        "min.insync.replicas=2",
    )
    with VerifiableProducer(
        tmp_path, cluster.bootstrap, "numbers", count=count, per_second=2_000
    ) as producer:

        def lose(broker: int, *, after: int) -> None:
            wait_for(
                producer.acknowledged,
                lambda seen: seen >= after,
                "the number acknowledged",
                cluster.logs,
            )
            with without(cluster, broker, topic="numbers"):
                more = producer.acknowledged() + 1_000
                wait_for(
                    producer.acknowledged,
                    lambda seen: seen >= more,
                    "the number acknowledged without it",
                    cluster.logs,
                )

        lose(cluster.partition("numbers").leader, after=1_000)
        lose(cluster.quorum_leader(), after=4_000)
        events = producer.end()
    assert {event["name"] for event in events} == {
        "startup_complete",
        "producer_send_success",
        "shutdown_complete",
        "tool_data",
    }
    assert (events[-1]["sent"], events[-1]["acked"]) == (count, count)
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert sorted(int(event["value"]) for event in sent) == list(range(count))
    with_offsets = ("--formatter-property", "print.offset=true")
    for partition in range(partitions):
        kept = sorted(
            (event["offset"], int(event["value"]))
            for event in sent
            if event["partition"] == partition
        )
        assert [offset for offset, _value in kept] == list(range(len(kept)))
        assert [value for _offset, value in kept] == sorted(value for _offset, value in kept)
        read = tools.consume("numbers", len(kept), *with_offsets, partition=partition)
        assert read == [f"Offset:{offset}\t{value}" for offset, value in kept]
