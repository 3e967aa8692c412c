"""Compare three brokers with 10,000 partitions with three of Apache Kafka 4, one cluster after the
other; then 100,000 partitions on Penstock alone, and the metadata of a million in one controller.

PENSTOCK_BENCH_QUICK=1 measures a hundredth of the partitions on Penstock only and saves no results,
to check the benchmark itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.cluster_peers import BROKERS, ClusterPeer, new_cluster
from bench.cluster_state import quorum, with_client
from bench.peer import EAGER, resident_mb
from bench.results import Section
from bench.side_by_side import COLUMNS, OURS, THEIRS
from bench.workdir import working_directory
from penstock.client.client import Client
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
TOPIC_PARTITIONS = 100 if QUICK else 1_000
SOME, MANY = (1, 2) if QUICK else (10, 100)  # topics
METADATA_PARTITIONS = 10_000 if QUICK else 1_000_000
SETTLE_S = 2.0 if QUICK else 30.0
IDLE_S = 2.0 if QUICK else 20.0
TIMEOUT_S = 900.0
_TICKS = os.sysconf("SC_CLK_TCK")
INTRO = (
    "Three brokers, default settings, topics of 1,000 partitions with replication factor 3 and no "
    "records; each cluster alone on the machine, one run. *All in sync*: from the first "
    "CreateTopics request until the metadata has a leader and three in-sync replicas for every "
    "partition and every broker has the log of every replica (DescribeLogDirs). *Failover*: from "
    "`kill -9` of a broker that is not the active controller until the metadata has another leader "
    "for each of its partitions. *Rejoined*: from its start until all replicas are in sync again. "
    f"CPU and memory per node after {SETTLE_S:.0f} s of rest, CPU over {IDLE_S:.0f} s."
)


class Measured(NamedTuple):
    in_sync_s: float
    resident_mb: list[float]
    idle_percent: list[float]
    failover_s: float
    rejoined_s: float
    restarted_s: float


def main() -> None:
    began = time.monotonic()
    section = Section("many", "make bench ONLY=many", INTRO)
    with working_directory() as directory:
        _beside_kafka(section, directory)
        _alone(section, directory)
    _metadata(section)
    section.text(f"The run took {(time.monotonic() - began) / 60:.1f} minutes.")
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _beside_kafka(section: Section, directory: Path) -> None:
    names = (OURS,) if QUICK else (OURS, THEIRS)
    found = {name: _measured(new_cluster(name, directory / "some"), SOME) for name in names}
    section.table(*COLUMNS)
    partitions = f"{SOME * TOPIC_PARTITIONS:,} partitions"
    for label, target, value in (
        (f"{partitions} created and all in sync, s", "8 s", lambda it: [it.in_sync_s]),
        ("resident memory of a node, MB", "100 MB", lambda it: it.resident_mb),
        ("idle CPU of a node, percent of a core", "3 percent", lambda it: it.idle_percent),
        ("failover of a third of them, s", "1 s", lambda it: [it.failover_s]),
        ("the killed broker rejoined, s", "", lambda it: [it.rejoined_s]),
        ("all killed and started, all in sync, s", "", lambda it: [it.restarted_s]),
    ):
        _row(section, label, target, found, value)


def _row(
    section: Section,
    label: str,
    target: str,
    found: dict[str, Measured],
    value: Callable[[Measured], list[float]],
) -> None:
    values = {name: value(measured) for name, measured in found.items()}
    ours, theirs = values[OURS], values.get(THEIRS)
    section.row(
        label,
        f"**{max(ours) / max(theirs):.3f}**" if theirs else "",
        _cell(ours),
        _cell(theirs) if theirs else "",
        target,
    )


def _alone(section: Section, directory: Path) -> None:
    peer = new_cluster(OURS, directory / "many")
    measured = _measured(peer, MANY)
    section.table("Penstock alone", f"{MANY * TOPIC_PARTITIONS:,} partitions on 3 brokers")
    for label, values in (
        ("created and all in sync, s", [measured.in_sync_s]),
        ("resident memory of a node, MB", measured.resident_mb),
        ("idle CPU of a node, percent of a core", measured.idle_percent),
        ("failover of a third of them, s", [measured.failover_s]),
        ("the killed broker rejoined, s", [measured.rejoined_s]),
        ("all brokers killed and started, all in sync, s", [measured.restarted_s]),
    ):
        section.row(label, _cell(values))


def _metadata(section: Section) -> None:
    """Measure the metadata in a process of its own, whose memory is that of the image."""
    command = [sys.executable, "-m", "bench.many_metadata", str(METADATA_PARTITIONS)]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    section.table(
        "one controller, in one process", f"metadata of {METADATA_PARTITIONS:,} partitions"
    )
    for label, value in json.loads(output).items():
        section.row(label, value)


def _cell(values: list[float]) -> str:
    return ", ".join(f"{value:,.1f}" for value in values)


# One cluster


def _measured(peer: ClusterPeer, topics: int) -> Measured:
    partitions = topics * TOPIC_PARTITIONS
    try:
        peer.start()
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, **EAGER})
        started = time.perf_counter()
        _create(admin, topics)
        _wait_in_sync(peer, admin, partitions)
        in_sync_s = time.perf_counter() - started
        time.sleep(SETTLE_S)
        pids = peer.pids()
        idle = idle_percent(list(pids.values()))
        resident = [resident_mb(pid) for pid in pids.values()]
        victim = next(node for node in pids if node != quorum(peer.bootstrap).leader_id)
        os.kill(pids[victim], 9)
        failover_s = _seconds_until(lambda: _leads_nothing(admin, victim))
        started = time.perf_counter()
        _restart(peer, victim)
        _seconds_until(lambda: _is_in_sync(admin, partitions))
        rejoined_s = time.perf_counter() - started
        pids = peer.pids()
        for pid in pids.values():
            os.kill(pid, 9)
        started = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            # At once: a node is not ready without a quorum.
            list(pool.map(partial(_restart, peer), pids))
        _wait_in_sync(peer, admin, partitions)
        restarted_s = time.perf_counter() - started
        return Measured(in_sync_s, resident, idle, failover_s, rejoined_s, restarted_s)
    finally:
        peer.kill()


def _restart(peer: ClusterPeer, node: int) -> None:
    """Start a killed node. `penstock nodes restart` may not wait until one with many partitions is
    ready."""
    with suppress(subprocess.TimeoutExpired):
        peer.restart(node)


def _create(admin: AdminClient, topics: int) -> None:
    """Create the topics one after the other: Kafka refuses more than 10,000 records at a time."""
    for number in range(topics):
        new = NewTopic(f"many-{number}", TOPIC_PARTITIONS, BROKERS)
        for created in admin.create_topics([new], request_timeout=120).values():
            created.result()


def _wait_in_sync(peer: ClusterPeer, admin: AdminClient, partitions: int) -> None:
    _seconds_until(lambda: _is_in_sync(admin, partitions))

    async def replicas(client: Client) -> list[int]:
        counts = []
        for broker_id in range(1, BROKERS + 1):
            broker = await client.cluster.broker(broker_id)
            response = await broker.call(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
            )
            counts.append(
                sum(
                    len(topic.partitions)
                    for result in response.results
                    for topic in result.topics
                    if topic.name.startswith("many-")
                )
            )
        return counts

    _seconds_until(lambda: with_client(peer.bootstrap, replicas) == [partitions] * BROKERS)


def _is_in_sync(admin: AdminClient, partitions: int) -> bool:
    found = [
        partition
        for topic in admin.list_topics(timeout=30).topics.values()
        if str(topic.topic).startswith("many-")
        for partition in topic.partitions.values()
    ]
    return len(found) == partitions and all(
        partition.leader >= 0 and len(partition.isrs) == BROKERS for partition in found
    )


def _leads_nothing(admin: AdminClient, broker_id: int) -> bool:
    return all(
        partition.leader not in (broker_id, -1)
        for topic in admin.list_topics(timeout=30).topics.values()
        for partition in topic.partitions.values()
    )


def _seconds_until(condition: Callable[[], bool]) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < TIMEOUT_S:
        try:
            if condition():
                return time.perf_counter() - started
        except KafkaException:
            pass  # No broker responds.
        time.sleep(0.02)
    raise SystemExit(f"the cluster did not get there within {TIMEOUT_S:.0f} s")


def idle_percent(pids: list[int]) -> list[float]:
    before = [_cpu_s(pid) for pid in pids]
    time.sleep(IDLE_S)
    return [(_cpu_s(pid) - used) / IDLE_S * 100 for pid, used in zip(pids, before, strict=True)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
