"""Kafka's DumpLogSegments on the metadata log and snapshots of `penstock up --brokers 3`.

Run by `make test-java`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.penstock_cluster import PenstockCluster, wait_for
from tests.e2e.penstock_process import running
from tests.java.dump_log import METADATA, dump, dumped_metadata
from tests.java.kafka_tools import CLUSTER, Tools

pytestmark = pytest.mark.java

METADATA_DIRECTORY = "data/__cluster_metadata-0"

Dumped = list[tuple[str, dict[str, Any]]]


def live_through(cluster: PenstockCluster) -> None:
    """Make changes of every kind that the metadata log records."""
    for number in range(12):
        cluster.create_topic(f"written-{number}", [[1, 2, 3]], retention_ms="5000")
    cluster.command(
        "topics", "delete", "written-0", "--yes", "--bootstrap-server", cluster.bootstrap
    )
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce("written-1", b"value")
    assert producer.flush(30) == 0
    assert cluster.nodes("add") == "4\n"
    cluster.nodes("kill", "4")
    Tools(cluster.bootstrap)(CLUSTER, "unregister", "--id", "4")
    cluster.nodes("kill", "1")
    cluster.wait_partition("written-1", lambda partition: 1 not in partition.isr)
    cluster.nodes("restart", "1")
    cluster.wait_partition("written-1", lambda partition: 1 in partition.isr)


def test_kafkas_tool_reads_the_metadata_log_and_its_snapshots(tmp_path: Path) -> None:
    with running(
        PenstockCluster(tmp_path, "metadata.log.max.record.bytes.between.snapshots=2000")
    ) as cluster:
        directories = [cluster.directory / str(node) / METADATA_DIRECTORY for node in (1, 2, 3)]
        live_through(cluster)
        wait_for(
            lambda: {log_bytes(directory) for directory in directories},
            lambda found: len(found) == 1,
            "one log on all nodes",
            cluster.logs,
        )
        snapshots = wait_for(
            lambda: [newest_snapshot(directory) for directory in directories],
            all,
            "a snapshot on every node",
            cluster.logs,
        )
        log = dumped(*sorted(directories[0].glob("*.log")))
        check_log(log)
        for snapshot in filter(None, snapshots):
            check_snapshot(dumped(snapshot), log[: int(snapshot.name.split("-")[0])])


def log_bytes(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def newest_snapshot(directory: Path) -> Path | None:
    return max(directory.glob("*.checkpoint"), default=None)


def dumped(*files: Path) -> Dumped:
    printed, complaints = dump(files, METADATA)
    assert complaints == []
    return dumped_metadata(printed)


def check_log(log: Dumped) -> None:
    """Check that the log starts as Kafka's does, and has only record types of Kafka's."""
    assert [name for name, _data in log][:3] == [
        "LeaderChange",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
    ]
    assert {name for name, _data in log} >= {
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "UNREGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    }


def check_snapshot(snapshot: Dumped, log: Dumped) -> None:
    """Check that the snapshot has the log's state up to its end offset."""
    assert (snapshot[0][0], snapshot[-1][0]) == ("SnapshotHeader", "SnapshotFooter")
    removed = [data["topicId"] for name, data in log if name == "REMOVE_TOPIC_RECORD"]
    topics = [
        data for name, data in log if name == "TOPIC_RECORD" and data["topicId"] not in removed
    ]
    in_snapshot = [data for name, data in snapshot if name == "TOPIC_RECORD"]
    assert sorted(map(str, in_snapshot)) == sorted(map(str, topics))
    assert {name for name, _data in snapshot} >= {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
    }
