"""Compare three brokers with three of Apache Kafka 4 in one run: the same client, alternating
rounds.

PENSTOCK_BENCH_QUICK=1 runs everything once with little data and saves no results, to check the
benchmark itself.
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
# Small batches are slower, so less data takes as long.
PRODUCED = (5 if QUICK else 200) * MB
PRODUCED_SMALL = (5 if QUICK else 100) * MB
LATENCY_S = 2 if QUICK else 8
IDLE_S = 1.0
FAILOVERS = {OURS: 2 if QUICK else 20, THEIRS: 1 if QUICK else 3}
DEFAULT_FAILOVERS = {OURS: 1 if QUICK else 5, THEIRS: 1}
CONTROLLERS = 3
IN_SYNC = MappingProxyType({"min.insync.replicas": "2"})
INTRO = (
    "Penstock (`penstock up --brokers 3`) and Apache Kafka 4.3.0 (three combined KRaft nodes, 1 GB "
    "of heap each, default settings) run at the same time and are measured alternately; topics "
    "have replication factor 3 and min.insync.replicas 2, producers acks=all; "
    f"medians of {ROUNDS} rounds with their range. The client is librdkafka "
    f"{confluent_kafka.libversion()[0]}, from confluent-kafka's wheel, driven by a C program; it "
    "shares the machine's cores with all six brokers. Start times are measured on new processes, "
    "without warm-up; Kafka's directories are formatted before. Memory is the resident memory of "
    "all processes; pages that Penstock's nodes share count in each."
)
FAILOVER_INTRO = (
    "Failover: the time from `kill -9` to the acknowledgement of the first acks=all record sent "
    "after it. Before each round the killed node is back, all replicas are in sync and preferred "
    "leaders lead. Medians with minimum and maximum. A round of about 1,000 ms was traced once, "
    "and the client caused it: librdkafka was connected only to the killed broker, counted its "
    "metadata request as sent when it had found another broker, and sent it again after a second."
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
                "resident memory after all of this, MB",
                "0.2",
                {name: [peer.resident_mb()] for name, peer in peers.items()},
            )
            section.table(
                "false alarms, Penstock",
                "partition leaders lost",
                "elections of the quorum's leader",
                "target",
            )
            watch.report(section, "the runs above")
            false_alarms(section, peers[OURS], watch)
            section.text(FAILOVER_INTRO)
            section.table(*COLUMNS)
            _leaders(section, peers)
            _failover_row(
                section,
                "the active one of three dedicated controllers, until the next topic is created, "
                "ms",
                "median 500 ms, worst 1,000 ms",
                controllers,
            )
        finally:
            for peer in peers.values():
                peer.kill()
    section.text(f"The run took {(time.monotonic() - began) / 60:.1f} minutes.")
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _starts(section: Section, directory: Path, peers: dict[str, ClusterPeer]) -> None:
    """Measure starts; the clusters of the last round stay up in `peers`.

    Kafka begins, so that only Penstock ever starts next to a running cluster.
    """
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
        "launch to a ready cluster (Kafka: metadata with three brokers), s",
        "0.1",
        ready,
        2,
    )
    row(
        section,
        "launch to first acknowledged record, replication factor 3, acks=all, s",
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
                f"{peer.bootstrap} acknowledged no record within {FIRST_TIMEOUT_S:.0f} s of its "
                "start"
            )
        if failures:
            raise KafkaException(failures[0])


def _produce(section: Section, peers: dict[str, ClusterPeer], load: Load) -> None:
    for settings, total, target in (
        ((), PRODUCED, "1.2"),
        (("batch.size=16384",), PRODUCED_SMALL, "4"),
    ):
        for size in (100, 1_000):
            case = Case(size, PARTITIONS, total, settings)
            megabytes, thousands = in_turn(
                peers, ROUNDS, WARM_UPS, partial(_produce_once, case=case, load=load)
            )
            row(section, f"produce, {case.name}, MB/s", target, megabytes)
            row(section, "the same, thousand records/s", target, thousands)


def _produce_once(peer: ClusterPeer, *, case: Case, load: Load) -> list[float]:
    with Topic(peer.bootstrap, case.partitions, BROKERS, IN_SYNC) as topic:
        return case.rates(load.produce(peer.bootstrap, topic, case.size, case.count, case.settings))


def _latency(section: Section, peers: dict[str, ClusterPeer], load: Load) -> None:
    for rate in (1_000, 10_000):
        measured = in_turn(peers, ROUNDS, WARM_UPS, partial(_latency_once, rate=rate, load=load))
        for name, target, figures in zip(
            ("p50", "p99", "p99.9"), ("", "1", ""), measured, strict=False
        ):
            row(
                section,
                f"end to end, {rate:,} records/s, linger 0, {PARTITIONS} partitions, {name}, ms",
                target,
                figures,
                2,
            )
        delay = measured[3]
        section.row(
            "the same, delay at the end, s",
            "",
            spread(delay[OURS], 2),
            spread(delay[THEIRS], 2),
            "keeps up with the rate",
        )


def _latency_once(peer: ClusterPeer, *, rate: int, load: Load) -> Latency:
    with Topic(peer.bootstrap, PARTITIONS, BROKERS, IN_SYNC) as topic:
        return load.latency(peer.bootstrap, topic, PARTITIONS, rate, LATENCY_S)


def _leaders(section: Section, peers: dict[str, ClusterPeer]) -> None:
    for client, settings, rounds in (
        ("the settings of failover.py", TUNED, FAILOVERS),
        ("librdkafka's defaults", DEFAULTS, DEFAULT_FAILOVERS),
    ):
        failovers = {
            name: leader_failovers(peer, rounds[name], settings) for name, peer in peers.items()
        }
        _failover_row(
            section,
            f"a partition leader, client with {client}, ms",
            "median 500 ms, worst 1,000 ms",
            failovers,
        )
        row(
            section,
            "of that, until metadata names the new leader, ms",
            "",
            {name: peer_failovers.elected for name, peer_failovers in failovers.items()},
        )


def _controllers(directory: Path) -> dict[str, Failovers]:
    """Measure one cluster after the other, before the rest: six JVMs are enough for the machine.
    A quick run measures only Penstock."""
    failovers: dict[str, Failovers] = {}
    for name in (OURS,) if QUICK else (OURS, THEIRS):
        peer = new_cluster(name, directory / "controllers", CONTROLLERS)
        try:
            peer.start()
            failovers[name] = controller_failovers(peer, FAILOVERS[name])
        finally:
            peer.kill()
    return failovers


def _failover_row(
    section: Section, label: str, target: str, failovers: dict[str, Failovers]
) -> None:
    ours, theirs = failovers[OURS], failovers.get(THEIRS)
    section.row(
        label,
        f"**{ratio(ours.times, theirs.times)}**" if theirs else "",
        _cell(ours),
        _cell(theirs) if theirs else "",
        target,
    )


def _cell(failovers: Failovers) -> str:
    return (
        f"{spread(failovers.times)}; {len(failovers.times)} round(s), {failovers.controllers} of "
        "them killing the active controller"
    )
