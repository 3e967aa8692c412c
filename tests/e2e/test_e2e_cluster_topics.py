"""A replicated topic on three brokers, created and described by Kafka's commands and by ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import COMMAND, running

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with running(PenstockCluster(tmp_path_factory.mktemp("topics"))) as three_brokers:
        yield three_brokers


def kafka(name: str, cluster: PenstockCluster, *arguments: str) -> tuple[int, str]:
    words = [
        str(COMMAND.parent / f"kafka-{name}.sh"),
        "--bootstrap-server",
        cluster.bootstrap.partition(",")[0],
        *arguments,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_each_broker_leads_one_partition_and_follows_the_others(cluster: PenstockCluster) -> None:
    created = kafka(
        "topics",
        cluster,
        "--create",
        "--topic",
        "orders",
        "--partitions",
        "3",
        "--replication-factor",
        "3",
    )
    assert created == (0, "Created topic orders.\n")
    code, described = kafka("topics", cluster, "--describe", "--topic", "orders")
    assert code == 0
    heading, *lines = described.splitlines()
    assert re.match(
        r"Topic: orders\tTopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: ",
        heading,
    )
    form = (
        r"\tTopic: orders\tPartition: (\d)\tLeader: (\d)\tReplicas: ((\d),\d,\d)\tIsr: "
        r"(\d,\d,\d)\tElr: \tLastKnownElr: "
    )
    found = [re.fullmatch(form, line) for line in lines]
    assert [match and match[1] for match in found] == ["0", "1", "2"]
    assert sorted(match[2] for match in found if match) == ["1", "2", "3"]
    for match in found:
        assert match is not None
        assert match[2] == match[4]
        assert sorted(match[3].split(",")) == sorted(match[5].split(",")) == ["1", "2", "3"]
    assert (
        cluster.command("topics", "describe", "orders", "--bootstrap-server", cluster.bootstrap)
        == described
    )


def test_more_replicas_than_brokers_are_refused_with_kafkas_message(
    cluster: PenstockCluster,
) -> None:
    reason = (
        "Error while executing topic command : Unable to replicate the partition 4 time(s): The "
        "target replication factor of 4 cannot be "
        "reached because only 3 broker(s) are registered or some brokers have all their log "
        "directories cordoned.\n"
    )
    assert kafka("topics", cluster, "--create", "--topic", "four", "--replication-factor", "4") == (
        1,
        reason,
    )


def test_brokers_nodes_and_quorum_are_shown(cluster: PenstockCluster) -> None:
    brokers = cluster.command(
        "brokers", "list", "--bootstrap-server", cluster.bootstrap
    ).splitlines()[1:]
    assert [line.split() for line in brokers] == [
        [str(node), f"127.0.0.1:{cluster.port + node - 1}", "-", "live"] for node in (1, 2, 3)
    ]
    assert [(node["id"], node["port"], node["state"]) for node in cluster.list()] == [
        (node, cluster.port + node - 1, "running") for node in (1, 2, 3)
    ]
    leader = str(cluster.quorum_leader())
    assert re.search(
        rf"^LeaderId: +{leader}$",
        cluster.command("quorum", "describe", "--bootstrap-server", cluster.bootstrap),
        re.MULTILINE,
    )
    code, replication = kafka("metadata-quorum", cluster, "describe", "--replication")
    rows = [line.split("\t") for line in replication.splitlines()[1:]]
    assert code == 0
    assert [(row[0].strip(), row[6].strip()) for row in rows] == [
        (leader, "Leader"),
        *((node, "Follower") for node in ("1", "2", "3") if node != leader),
    ]


def test_any_broker_forwards_requests_to_the_controller(cluster: PenstockCluster) -> None:
    for node in (1, 2, 3):
        at = f"127.0.0.1:{cluster.port + node - 1}"
        cluster.command(
            "topics", "create", f"by-{node}", "--replication-factor", "3", "--bootstrap-server", at
        )
        assert cluster.partition(f"by-{node}", broker=node).replicas
        cluster.command(
            "topics",
            "alter",
            f"by-{node}",
            "--partitions",
            "2",
            "-c",
            "retention.ms=5000",
            "--bootstrap-server",
            at,
        )
        cluster.command("topics", "delete", f"by-{node}", "--yes", "--bootstrap-server", at)


def test_an_added_broker_gets_replicas(cluster: PenstockCluster) -> None:
    assert cluster.nodes("add") == "4\n"
    assert cluster.list()[3]["roles"] == ["broker"]
    assert kafka("topics", cluster, "--create", "--topic", "wide", "--replication-factor", "4") == (
        0,
        "Created topic wide.\n",
    )
    assert sorted(
        cluster.wait_partition("wide", lambda partition: len(partition.isr) == 4).isr
    ) == [1, 2, 3, 4]


def test_flags_that_contradict_the_directory_are_refused(tmp_path: Path) -> None:
    kept = PenstockCluster(tmp_path, brokers=2)
    with running(kept):
        pass
    for flags, reason in (
        (("--brokers", "3"), "has a cluster with --brokers 2, not 3"),
        (("--controllers", "1"), "has a cluster with --controllers not given, not 1"),
        (("--port", "9999"), f"has a cluster with --port {kept.port}, not 9999"),
        (("--racks", "a,b"), "has a cluster with --racks not given, not a,b"),
        (("-c", "num.partitions=7"), "has num.partitions=None, not 7"),
    ):
        words = [str(COMMAND), "up", "--dir", str(kept.directory), *flags]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert reason in done.stderr
