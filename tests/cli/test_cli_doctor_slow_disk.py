"""Doctor names a disk whose syncs are slow as the cause of replicas that are behind. strace delays
the sync calls of one broker's process, as a worn-out disk does."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.penstock_cluster import PATIENCE_S, PenstockCluster
from tests.e2e.penstock_process import running
from tests.e2e.slow_calls import SYNCS, needs_strace, slow_calls

pytestmark = [
    pytest.mark.more,
    pytest.mark.xdist_group("cluster"),
    needs_strace,
]

SYNC_S = 4
PARTITIONS = 3


@contextmanager
def steady_load(cluster: PenstockCluster, topic: str) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "acks": "1"})
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.wait(0.05):
            for index in range(PARTITIONS):
                producer.produce(topic, b"x" * 100, partition=index)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        assert producer.flush(PATIENCE_S) == 0


Finding = dict[str, Any]


def doctor(cluster: PenstockCluster) -> dict[str, Finding]:
    """Return the findings by their codes."""
    words = ("--dir", str(cluster.directory), "--over", "5", "--json")
    done = subprocess.run(
        [str(cluster.penstock), "doctor", *words], capture_output=True, timeout=60, check=False
    )
    findings = json.loads(done.stdout)["findings"]
    return {finding["code"]: finding for finding in findings}


def test_a_replica_falls_behind_because_its_disk_is_slow(tmp_path: Path) -> None:
    settings = ("replica.lag.time.max.ms=2000", "auto.leader.rebalance.enable=false")
    with running(PenstockCluster(tmp_path, *settings)) as cluster:
        slow = next(node for node in (1, 2, 3) if node != cluster.quorum_leader())
        others = [node for node in (1, 2, 3) if node != slow]
        cluster.create_topic("synced", [[*others, slow]] * PARTITIONS, flush_messages="1")
        (pid,) = [node["pid"] for node in cluster.list() if node["id"] == slow]
        with steady_load(cluster, "synced"):
            assert "disk-slow" not in doctor(cluster)
            with slow_calls(pid, SYNC_S, *SYNCS):
                cause = named_cause(cluster)
    assert cause["subjects"] == ["synced-0", "synced-1", "synced-2"]
    assert f"broker {slow} " in cause["summary"]
    assert "its disk is slow" in cause["summary"]
    assert f"look for other work on the disk of broker {slow}" in cause["todo"][0]


def named_cause(cluster: PenstockCluster) -> Finding:
    """Wait until doctor gives a cause for replicas that are not in sync."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    while True:
        found = doctor(cluster)
        for code in ("at-min-isr", "under-replicated"):
            if "disk is slow" in found.get(code, {}).get("summary", ""):
                assert "disk-slow" in found
                return found[code]
        assert time.monotonic() < deadline, json.dumps(found, indent=1)
