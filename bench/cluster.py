"""Three brokers beside three of Apache Kafka 4, in one run: the same client, the same minutes,
rounds in turn. Ratios first.

PENSTOCK_BENCH_QUICK=1 tries everything with little data, once, and keeps no results: for checking
the benchmark, not the cluster.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from types import MappingProxyType

import confluent_kafka
from confluent_kafka import KafkaException, Producer

from bench.cluster_peers import BROKERS, ClusterPeer, new_cluster
from bench.failover import DEFAULTS, TUNED, Failovers, controller_failovers, leader_failovers
from bench.false_alarms import Watch, false_alarms
from bench.load import MB, Case, Latency, Load, Topic
from bench.peer import EAGER, FIRST_TIMEOUT_S
from bench.results import Section, spread
from bench.side_by_side import COLUMNS, OURS, THEIRS, Figures, in_turn, ratio, row

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 3
WARM_UPS = 0 if QUICK else 1
PARTITIONS = 6
# Small batches are slow enough that fewer of them measure as well.
PRODUCED = (5 if QUICK else 200) * MB
PRODUCED_SMALL = (5 if QUICK else 100) * MB
LATENCY_S = 2 if QUICK else 8
IDLE_S = 1.0
FAILOVERS = {OURS: 2 if QUICK else 20, THEIRS: 1 if QUICK else 3}
DEFAULT_FAILOVERS = {OURS: 1 if QUICK else 5, THEIRS: 1}
CONTROLLERS = 3
IN_SYNC = MappingProxyType({"min.insync.replicas": "2"})
INTRO = (
    "Penstock (`penstock up --brokers 3`) beside Apache Kafka 4.3.0 (three KRaft nodes, broker "
    "and controller in one, 1 GB of heap each, "
    "default settings), both up, measured in turn; topics of factor 3 with min.insync.replicas 2, "
    "acks=all; "
    f"medians of {ROUNDS} rounds and their range. The client is librdkafka "
    f"{confluent_kafka.libversion()[0]}, from confluent-kafka's "
    "wheel, driven by a C program; it shares the machine's cores with all six brokers. "
    "Starts: fresh processes, without warm-up, Kafka's directories formatted before. Memory is "
    "the resident memory of all processes, "
    "pages that Penstock's nodes share counted in each."
)
FAILOVER_INTRO = (
    "`kill -9`, to the acknowledgement of the first acks=all write that was sent after it. In the "
    "next round the victim is back, "
    "everything in sync, and preferred leaders lead. Medians, least and worst. "
    "A round of about 1,000 ms was traced once and was the client's: librdkafka, connected to "
    "nobody but the victim, took its request for "
    "metadata for sent when it had found another broker, and asked again after a second."
)


def main() -> None:
    began = time.monotonic()
    section = Section("cluster", "make bench ONLY=cluster", INTRO)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(directory)
        controllers = _controllers(directory)
        peers: dict[str, ClusterPeer] = {}
        try:
            section.table(*COLUMNS)
            _starts(section, directory, peers)
            watch = Watch(peers[OURS])
            _produce(section, peers, load)
            _latency(section, peers, load)
            row(
                section,
                "resident memory after all this, MB",
                "0.2",
                {name: [peer.resident_mb()] for name, peer in peers.items()},
            )
            section.table(
                "no false alarm: Penstock",
                "partition leaders lost",
                "elections of the quorum's leader",
                "aim",
            )
            watch.report(section, "the runs above")
            false_alarms(section, peers[OURS], watch)
            section.text(FAILOVER_INTRO)
            section.table(*COLUMNS)
            _leaders(section, peers)
            what = "the active controller alone, three of their own, to the next topic created, ms"
            _failover_row(section, what, "median 500 ms, worst 1,000 ms", controllers)
        finally:
            for peer in peers.values():
                peer.kill()
    section.text(f"The whole run took {(time.monotonic() - began) / 60:.1f} minutes.")
    if QUICK:
        print("a quick try: nothing was kept")
    else:
        section.save()


def _starts(section: Section, directory: Path, peers: dict[str, ClusterPeer]) -> None:
    """The last ones stay up, in `peers`. Kafka begins, so that it is Penstock that once starts
    beside the other."""
    ready: Figures = {OURS: [], THEIRS: []}
    first: Figures = {OURS: [], THEIRS: []}
    memory: Figures = {OURS: [], THEIRS: []}
    for number in range(ROUNDS):
        for name in (THEIRS, OURS):
            peers[name] = peer = new_cluster(name, directory / f"start-{number}")
            started = time.perf_counter()
            peer.start()
            ready[name].append(time.perf_counter() - started)
            _first_record(peer)
            first[name].append(time.perf_counter() - started)
            time.sleep(IDLE_S)
            memory[name].append(peer.resident_mb())
            if number < ROUNDS - 1:
                peer.kill()
    row(
        section,
        "from launch to a ready cluster (Kafka: metadata with three brokers), s",
        "0.1",
        ready,
        2,
    )
    row(
        section,
        "from launch to the first acknowledged record, factor 3, acks=all, s",
        "0.1",
        first,
        2,
    )
    row(section, "resident memory after the first record, MB", "0.2", memory)


def _first_record(peer: ClusterPeer) -> None:
    with Topic(peer.bootstrap, 1, BROKERS, IN_SYNC) as topic:
        producer = Producer({"bootstrap.servers": peer.bootstrap, "acks": "all", **EAGER})
        failures: list[confluent_kafka.KafkaError] = []
        producer.produce(
            topic,
            b"record",
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        if producer.flush(FIRST_TIMEOUT_S):
            raise SystemExit(
                f"no record was acknowledged by {peer.bootstrap} within {FIRST_TIMEOUT_S:.0f} s "
                "of its start"
            )
        if failures:
            raise KafkaException(failures[0])


def _produce(section: Section, peers: dict[str, ClusterPeer], load: Load) -> None:
    for settings, total, aim in (
        ((), PRODUCED, "1.2"),
        (("batch.size=16384",), PRODUCED_SMALL, "4"),
    ):
        for size in (100, 1_000):
            case = Case(size, PARTITIONS, total, settings)
            megabytes, thousands = in_turn(
                peers, ROUNDS, WARM_UPS, partial(_produce_once, case=case, load=load)
            )
            row(section, f"produce, {case.name}, MB/s", aim, megabytes)
            row(section, "the same, thousand records/s", aim, thousands)


def _produce_once(peer: ClusterPeer, *, case: Case, load: Load) -> list[float]:
    with Topic(peer.bootstrap, case.partitions, BROKERS, IN_SYNC) as topic:
        return case.rates(load.produce(peer.bootstrap, topic, case.size, case.count, case.settings))


def _latency(section: Section, peers: dict[str, ClusterPeer], load: Load) -> None:
    for rate in (1_000, 10_000):
        found = in_turn(peers, ROUNDS, WARM_UPS, partial(_latency_once, rate=rate, load=load))
        for name, aim, figures in zip(("p50", "p99", "p99.9"), ("", "1", ""), found, strict=False):
            row(
                section,
                f"end to end, {rate:,} records/s, linger 0, {PARTITIONS} partitions, {name}, ms",
                aim,
                figures,
                2,
            )
        behind = found[3]
        section.row(
            "the same, behind at the end, s",
            "",
            spread(behind[OURS], 2),
            spread(behind[THEIRS], 2),
            "no falling behind",
        )


def _latency_once(peer: ClusterPeer, *, rate: int, load: Load) -> Latency:
    with Topic(peer.bootstrap, PARTITIONS, BROKERS, IN_SYNC) as topic:
        return load.latency(peer.bootstrap, topic, PARTITIONS, rate, LATENCY_S)


def _leaders(section: Section, peers: dict[str, ClusterPeer]) -> None:
    for client, settings, rounds in (
        ("failover.py's settings", TUNED, FAILOVERS),
        ("librdkafka's defaults", DEFAULTS, DEFAULT_FAILOVERS),
    ):
        found = {
            name: leader_failovers(peer, rounds[name], settings) for name, peer in peers.items()
        }
        _failover_row(
            section,
            f"a partition's leader, client with {client}, ms",
            "median 500 ms, worst 1,000 ms",
            found,
        )
        row(
            section,
            "of that, until brokers name the next leader to who asks all the time, ms",
            "",
            _elected(found),
        )


def _elected(found: dict[str, Failovers]) -> Figures:
    return {name: one.elected for name, one in found.items()}


def _controllers(directory: Path) -> dict[str, Failovers]:
    """One after the other, and before the rest: six JVMs are enough for the machine. A quick try
    does without them."""
    found: dict[str, Failovers] = {}
    for name in (OURS,) if QUICK else (OURS, THEIRS):
        peer = new_cluster(name, directory / "controllers", CONTROLLERS)
        try:
            peer.start()
            found[name] = controller_failovers(peer, FAILOVERS[name])
        finally:
            peer.kill()
    return found


def _failover_row(section: Section, what: str, aim: str, found: dict[str, Failovers]) -> None:
    ours, theirs = found[OURS], found.get(THEIRS)
    section.row(
        what,
        f"**{ratio(ours.times, theirs.times)}**" if theirs else "",
        _cell(ours),
        _cell(theirs) if theirs else "",
        aim,
    )


def _cell(one: Failovers) -> str:
    return (
        f"{spread(one.times)}; {len(one.times)} round(s), {one.controllers} of them with the "
        "active controller as victim"
    )
