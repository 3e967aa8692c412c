"""Compare one broker with Apache Kafka 4 in one run: the same client, alternating rounds.

PENSTOCK_BENCH_QUICK=1 runs everything once with little data and saves no results, to check the
benchmark itself.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import confluent_kafka

from bench.load import MB, Case, Latency, Load, Topic
from bench.peer import Peer, new_peers, resident_mb, running, seconds_to_first_record
from bench.results import Section
from bench.side_by_side import COLUMNS, in_turn, row

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 3
PRODUCED = (20 if QUICK else 200) * MB
MEMORY_AFTER = (50 if QUICK else 1_000) * MB
LATENCY_S = 3 if QUICK else 10
INTRO = (
    "Penstock (`penstock up`) and Apache Kafka 4.3.0 (one KRaft node, 1 GB of heap, default "
    "settings except internal topics with one partition and one replica) run at the same time and "
    f"are measured alternately; medians of {ROUNDS} rounds with their range. The client is "
    f"librdkafka {confluent_kafka.libversion()[0]}, from confluent-kafka's wheel, driven by a C "
    "program; it shares the machine's cores with the brokers. Start time and initial memory are "
    "measured on new processes, one after the other, without warm-up; the last memory row is a "
    "single measurement."
)


def main() -> None:
    section = Section("broker", "make bench ONLY=broker", INTRO)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(directory)
        section.table(*COLUMNS)
        _starts(section, directory)
        peers = new_peers(directory / "long")
        with running(peers):
            _produce(section, peers, load)
            _consume(section, peers, load)
            _latency(section, peers, load)
            _memory(section, peers, load)
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _starts(section: Section, directory: Path) -> None:
    seconds: dict[str, list[float]] = {"Penstock": [], "Apache Kafka": []}
    memory: dict[str, list[float]] = {"Penstock": [], "Apache Kafka": []}
    for number in range(ROUNDS):
        for name, peer in new_peers(directory / f"start-{number}").items():
            try:
                seconds[name].append(seconds_to_first_record(peer))
                memory[name].append(resident_mb(peer.pid))
            finally:
                peer.kill()
    row(
        section,
        "process start to first acknowledged record, s (Kafka's directory is formatted before)",
        "0.1",
        seconds,
        2,
    )
    row(section, "resident memory after the first record, MB", "0.2", memory)


SHAPES = [(size, partitions) for size in (100, 1_000) for partitions in (1, 6)]


def _produce(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for settings, target in (((), "1.2"), (("batch.size=16384",), "2")):
        for size, partitions in SHAPES:
            case = Case(size, partitions, PRODUCED, settings)
            megabytes, thousands = in_turn(
                peers, ROUNDS, 1, partial(_produce_once, case=case, load=load)
            )
            row(section, f"produce, {case.name}, MB/s", target, megabytes)
            row(section, "the same, thousand records/s", target, thousands)


def _produce_once(peer: Peer, *, case: Case, load: Load) -> list[float]:
    with Topic(peer.bootstrap, case.partitions) as topic:
        return case.rates(load.produce(peer.bootstrap, topic, case.size, case.count, case.settings))


def _consume(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for size, partitions in SHAPES:
        case = Case(size, partitions, PRODUCED)
        with ExitStack() as stack:
            topics = {
                peer.bootstrap: stack.enter_context(Topic(peer.bootstrap, partitions))
                for peer in peers.values()
            }
            for peer in peers.values():
                load.produce(peer.bootstrap, topics[peer.bootstrap], size, case.count)
            megabytes, thousands = in_turn(
                peers, ROUNDS, 1, partial(_consume_once, topics=topics, case=case, load=load)
            )
        row(section, f"consume, {case.name}, MB/s", "1.2", megabytes)
        row(section, "the same, thousand records/s", "1.2", thousands)


def _consume_once(peer: Peer, *, topics: dict[str, str], case: Case, load: Load) -> list[float]:
    return case.rates(
        load.consume(peer.bootstrap, topics[peer.bootstrap], case.partitions, case.count)
    )


def _latency(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for rate, target in ((1_000, "1"), (10_000, "keeps up with the rate")):
        percentiles = in_turn(peers, ROUNDS, 1, partial(_latency_once, rate=rate, load=load))
        for name, figures in zip(("p50", "p99", "p99.9"), percentiles, strict=False):
            row(
                section, f"end to end, {rate:,} records/s, linger 0, {name}, ms", target, figures, 2
            )


def _latency_once(peer: Peer, *, rate: int, load: Load) -> Latency:
    with Topic(peer.bootstrap, 1) as topic:
        return load.latency(peer.bootstrap, topic, 1, rate, LATENCY_S)


def _memory(section: Section, peers: dict[str, Peer], load: Load) -> None:
    figures: dict[str, list[float]] = {}
    for name, peer in peers.items():
        with Topic(peer.bootstrap, 1) as topic:
            load.produce(peer.bootstrap, topic, 1_000, MEMORY_AFTER // 1_000)
            load.consume(peer.bootstrap, topic, 1, MEMORY_AFTER // 1_000)
            figures[name] = [resident_mb(peer.pid)]
    row(
        section,
        f"resident memory after all of this and {MEMORY_AFTER // MB:,} MB more, MB",
        "0.2",
        figures,
    )
