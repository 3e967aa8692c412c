"""Hold producers, consumers and replicas to quotas, beside Apache Kafka 4, in one run.

PENSTOCK_BENCH_QUICK=1 runs everything for a few seconds and saves no results, to check the
benchmark itself.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.cluster_peers import ClusterPeer, new_cluster
from bench.results import Section
from bench.side_by_side import OURS, THEIRS
from penstock import ids
from penstock.client.admin.configs import ConfigResourceType
from penstock.client.admin.log_dirs import describe_log_dirs
from penstock.client.client import Client
from penstock.security.quotas.entities import CLIENT_ID
from penstock.world import World
from penstock.world.real import run

T = TypeVar("T")

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
MB = 1_000_000
QUOTA = 2 * MB
REPLICATION_QUOTA = 4 * MB
# Kafka measures rates over eleven windows of a second. The first of them let a burst pass.
WARM_UP_S = 2 if QUICK else 33
MEASURED_S = 4 if QUICK else 88
# Until the copy has what the first windows let pass, and while it is not at its end.
COPIED = 0.2, 0.95
REPLICATED = (12 if QUICK else 400) * MB
VALUE = os.urandom(10_000)
TARGET = "95 to 105"
COLUMNS = ("measurement, percent of the quota", OURS, THEIRS, "target")
INTRO = (
    "Penstock (`penstock up --brokers 3`) and Apache Kafka 4.3.0 (three combined KRaft nodes, 1 GB "
    "of heap each, default settings) run, and are measured, at the same time. A producer and a "
    f"consumer of librdkafka {confluent_kafka.libversion()[0]} with default settings have a quota "
    f"of {QUOTA // MB} MB/s (producer_byte_rate, consumer_byte_rate of their client ids). They are "
    f"measured for {MEASURED_S} s after {WARM_UP_S} s, in bytes of values of {len(VALUE):,} B. "
    f"Replication is a reassignment of {REPLICATED // MB} MB from one broker to another with "
    f"leader and follower.replication.throttled.rate of {REPLICATION_QUOTA // MB} MB/s, measured "
    f"between {COPIED[0]:.0%} and {COPIED[1]:.0%} of the bytes."
)


def main() -> None:
    began = time.monotonic()
    section = Section("quotas", "make bench ONLY=quotas", INTRO)
    section.table(*COLUMNS)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        peers = {name: new_cluster(name, Path(directory)) for name in (THEIRS, OURS)}
        try:
            for peer in peers.values():
                peer.start()
            for label, measure in (
                ("produce", produced),
                ("fetch", consumed),
                ("replication", replicated),
            ):
                percent = at_once(peers, measure)
                section.row(label, f"{percent[OURS]:.1f}", f"{percent[THEIRS]:.1f}", TARGET)
        finally:
            for peer in peers.values():
                peer.kill()
    section.text(f"The run took {(time.monotonic() - began) / 60:.1f} minutes.")
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def at_once(peers: Mapping[str, ClusterPeer], measure: Callable[[str], float]) -> dict[str, float]:
    """Measure all systems at the same time: none uses more than a part of the machine."""
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(measure, peer.bootstrap) for name, peer in peers.items()}
        return {name: future.result() for name, future in running.items()}


def with_client(bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def connected(world: World) -> T:
        async with Client(world, bootstrap) as client:
            return await work(client)

    return run(connected)


def new_topic(bootstrap: str, quotas: Mapping[str, float | None]) -> str:
    """Create a topic on broker 1, and give the client id of the same name quotas."""
    name = f"bench-{uuid4().hex[:8]}"

    async def work(client: Client) -> None:
        await client.admin.create_topic(name, assignments=[[1]])
        if quotas:
            await client.admin.alter_client_quotas({((CLIENT_ID, name),): quotas})

    with_client(bootstrap, work)
    return name


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for _ in range(size // len(VALUE)):
        while True:
            try:
                producer.produce(topic, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{bootstrap} did not take the records in time")


class Measured:
    """Bytes within the measured time."""

    def __init__(self) -> None:
        self._from = time.monotonic() + WARM_UP_S
        self._first: tuple[float, int] | None = None
        self._last = 0.0, 0

    def add(self, total: int) -> bool:
        """Note the bytes so far. Return False when the time is over."""
        now = time.monotonic()
        if self._first is None and now >= self._from:
            self._first = now, total
        self._last = now, total
        return now < self._from + MEASURED_S

    @property
    def rate(self) -> float:
        if self._first is None:
            raise SystemExit("the measured time was over before it began")
        (began, first), (ended, last) = self._first, self._last
        return (last - first) / (ended - began)


def produced(bootstrap: str) -> float:
    topic = new_topic(bootstrap, {"producer_byte_rate": QUOTA})
    acknowledged = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += len(VALUE)

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": topic, "log_level": 0})
    measured = Measured()
    while measured.add(acknowledged):
        try:
            producer.produce(topic, VALUE, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    return measured.rate / QUOTA * 100


def consumed(bootstrap: str) -> float:
    topic = new_topic(bootstrap, {"consumer_byte_rate": QUOTA})
    # Twelve windows let a burst pass at first.
    fill(bootstrap, topic, int(QUOTA * (WARM_UP_S + MEASURED_S + 12) * 1.2))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": topic,
            "group.id": topic,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    measured, read = Measured(), 0
    while measured.add(read):
        read += sum(len(message.value() or b"") for message in consumer.consume(1_000, 0.05))
    consumer.close()
    return measured.rate / QUOTA * 100


def replicated(bootstrap: str) -> float:
    topic = new_topic(bootstrap, {})
    fill(bootstrap, topic, REPLICATED)
    partition = ids.TopicPartition(topic, 0)
    rate = str(REPLICATION_QUOTA)

    async def size_on(client: Client, broker: int) -> int:
        directories = await describe_log_dirs(client.cluster, broker, [partition])
        return sum(
            replica.size for directory in directories for replica in directory.replicas.values()
        )

    async def work(client: Client) -> float:
        admin = client.admin
        for broker in ("1", "2"):
            await admin.alter_configs(
                ConfigResourceType.BROKER,
                broker,
                put={
                    "leader.replication.throttled.rate": rate,
                    "follower.replication.throttled.rate": rate,
                },
            )
        await admin.alter_configs(
            ConfigResourceType.TOPIC,
            topic,
            put={
                "leader.replication.throttled.replicas": "*",
                "follower.replication.throttled.replicas": "*",
            },
        )
        whole = await size_on(client, 1)
        await admin.alter_partition_reassignments({partition: [2]})
        samples: list[tuple[float, int]] = []
        while True:
            size = await size_on(client, 2)
            if size > COPIED[1] * whole:
                break
            if size >= COPIED[0] * whole:
                samples.append((time.monotonic(), size))
            await asyncio.sleep(0.2)
        if len(samples) < 2:
            return float("nan")
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) / (ended - began)

    return with_client(bootstrap, work) / REPLICATION_QUOTA * 100
