"""One broker beside Apache Kafka 4, in one run: the same client, the same minutes, rounds in turn. Ratios first.

PENSTOCK_BENCH_QUICK=1 tries everything with little data, once, and keeps no results: for checking the benchmark, not the broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peer import Peer, new_peers, resident_mb, seconds_to_first_record
from bench.results import Section, median, spread

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 3
MB = 1_000_000
PRODUCED = (20 if QUICK else 200) * MB
MEMORY_AFTER = (50 if QUICK else 1_000) * MB
LATENCY_S = 3 if QUICK else 10
RUN_TIMEOUT_S = 600
SOURCE = Path(__file__).parent / "rdkafka_load.c"
INTRO = (
    "Penstock (`penstock up`) beside Apache Kafka 4.3.0 (one KRaft node, 1 GB of heap, default settings "
    "but for internal topics of one partition and one copy), both up, measured in turn; "
    f"medians of {ROUNDS} rounds and their range. The client is librdkafka {confluent_kafka.libversion()[0]}, from confluent-kafka's "
    "wheel, driven by a C program; it shares the machine's cores with the brokers. "
    "Start and first memory: fresh processes one after the other, no warm-up; the last memory row is one reading."
)

Measure = Callable[[Peer], list[float]]


def main() -> None:
    section = Section("broker", "make bench ONLY=broker", INTRO)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(_compile(directory))
        section.table("what", "Penstock / Kafka", "Penstock", "Apache Kafka", "aim")
        _starts(section, directory)
        peers = new_peers(directory / "long")
        try:
            for peer in peers.values():
                peer.start()
            _produce(section, peers, load)
            _consume(section, peers, load)
            _latency(section, peers, load)
            _memory(section, peers, load)
        finally:
            for peer in peers.values():
                peer.kill()
    if QUICK:
        print("a quick try: nothing was kept")
    else:
        section.save()


class Load:
    """The C program, run once for each measurement, so that no round inherits a warm client."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def produce(self, peer: Peer, topic: str, size: int, count: int, settings: tuple[str, ...] = ()) -> float:
        """Seconds."""
        return self._run("produce", peer.bootstrap, topic, str(size), str(count), *settings)[0]

    def consume(self, peer: Peer, topic: str, partitions: int, count: int) -> float:
        """Seconds."""
        return self._run("consume", peer.bootstrap, topic, str(partitions), str(count))[0]

    def latency(self, peer: Peer, topic: str, rate: int) -> list[float]:
        """p50, p99 and p99.9 in ms."""
        return self._run("latency", peer.bootstrap, topic, "100", str(rate), str(LATENCY_S))[:3]

    def _run(self, *arguments: str) -> list[float]:
        done = subprocess.run([self._program, *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise SystemExit(f"rdkafka_load {' '.join(arguments)} failed: {done.stderr}")
        return [float(word) for word in done.stdout.split()]


class Topic:
    """A topic for one measurement, gone after it: what is deleted soon is never written to the disk and does not burden the next round."""

    def __init__(self, peer: Peer, partitions: int) -> None:
        self.name = f"bench-{uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": peer.bootstrap})
        topic = NewTopic(self.name, partitions, 1, config={"file.delete.delay.ms": "1000"})
        self._admin.create_topics([topic])[self.name].result(60)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_error: object) -> None:
        self._admin.delete_topics([self.name])[self.name].result(60)


def _compile(directory: Path) -> Path:
    compiler = shutil.which("cc")
    libraries = sorted((Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    if compiler is None or not libraries:
        raise SystemExit("the broker benchmark needs a C compiler (cc) and confluent-kafka's wheel for Linux, which has librdkafka in it")
    program, library = directory / "rdkafka_load", libraries[0]
    # The wheel's own copies of what librdkafka needs lie beside it.
    linking = [str(library), f"-Wl,-rpath,{library.parent}", f"-Wl,-rpath-link,{library.parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run([compiler, "-O2", "-Wall", "-o", str(program), str(SOURCE), *linking, "-lpthread"], check=True)
    return program


def _rounds(peers: dict[str, Peer], measure: Measure) -> dict[str, list[list[float]]]:
    """Per peer, what each round gave. The first round warms up and is not counted; who begins alternates."""
    found: dict[str, list[list[float]]] = {name: [] for name in peers}
    for number in range(ROUNDS + 1):
        for name in list(peers) if number % 2 else list(reversed(peers)):
            figures = measure(peers[name])
            if number > 0:
                found[name].append(figures)
    return found


def _column(found: dict[str, list[list[float]]], number: int) -> dict[str, list[float]]:
    return {name: [figures[number] for figures in rounds] for name, rounds in found.items()}


def _row(section: Section, what: str, aim: str, figures: dict[str, list[float]], digits: int = 0) -> None:
    ours, theirs = figures["Penstock"], figures["Apache Kafka"]
    section.row(what, f"**{median(ours) / median(theirs):.2f}**", spread(ours, digits), spread(theirs, digits), aim)


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
    _row(section, "from process start to the first acknowledged record, s (Kafka's directory is formatted before)", "0.1", seconds, 2)
    _row(section, "resident memory after the first record, MB", "0.2", memory)


@dataclass(frozen=True)
class Case:
    size: int
    partitions: int
    settings: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return PRODUCED // self.size

    @property
    def name(self) -> str:
        size = {100: "100-B", 1_000: "1-KB"}[self.size]
        return f"{size} records, {self.settings[0] if self.settings else 'default batching'}, {self.partitions} partition(s)"

    def rates(self, seconds: float) -> list[float]:
        """MB/s, and thousand records/s."""
        return [self.count * self.size / MB / seconds, self.count / seconds / 1_000]


SHAPES = [(size, partitions) for size in (100, 1_000) for partitions in (1, 6)]


def _produce(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for settings, aim in (((), "1.2"), (("batch.size=16384",), "2")):
        for size, partitions in SHAPES:
            case = Case(size, partitions, settings)
            found = _rounds(peers, partial(_produce_once, case=case, load=load))
            _row(section, f"produce, {case.name}, MB/s", aim, _column(found, 0))
            _row(section, "the same, thousand records/s", aim, _column(found, 1))


def _produce_once(peer: Peer, *, case: Case, load: Load) -> list[float]:
    with Topic(peer, case.partitions) as topic:
        return case.rates(load.produce(peer, topic, case.size, case.count, case.settings))


def _consume(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for size, partitions in SHAPES:
        case = Case(size, partitions)
        with ExitStack() as stack:
            topics = {peer.bootstrap: stack.enter_context(Topic(peer, partitions)) for peer in peers.values()}
            for peer in peers.values():
                load.produce(peer, topics[peer.bootstrap], size, case.count)
            found = _rounds(peers, partial(_consume_once, topics=topics, case=case, load=load))
        _row(section, f"consume, {case.name}, MB/s", "1.2", _column(found, 0))
        _row(section, "the same, thousand records/s", "1.2", _column(found, 1))


def _consume_once(peer: Peer, *, topics: dict[str, str], case: Case, load: Load) -> list[float]:
    return case.rates(load.consume(peer, topics[peer.bootstrap], case.partitions, case.count))


def _latency(section: Section, peers: dict[str, Peer], load: Load) -> None:
    for rate, aim in ((1_000, "1"), (10_000, "no falling behind")):
        found = _rounds(peers, partial(_latency_once, rate=rate, load=load))
        for number, name in enumerate(("p50", "p99", "p99.9")):
            _row(section, f"end to end, {rate:,} records/s, linger 0, {name}, ms", aim, _column(found, number), 2)


def _latency_once(peer: Peer, *, rate: int, load: Load) -> list[float]:
    with Topic(peer, 1) as topic:
        return load.latency(peer, topic, rate)


def _memory(section: Section, peers: dict[str, Peer], load: Load) -> None:
    figures: dict[str, list[float]] = {}
    for name, peer in peers.items():
        with Topic(peer, 1) as topic:
            load.produce(peer, topic, 1_000, MEMORY_AFTER // 1_000)
            load.consume(peer, topic, 1, MEMORY_AFTER // 1_000)
            figures[name] = [resident_mb(peer.pid)]
    _row(section, f"resident memory after all this and {MEMORY_AFTER // MB:,} MB more, MB", "0.2", figures)
