"""This checkout beside an earlier one, in one run: `python -m bench.before OTHER_CHECKOUT`.

OTHER_CHECKOUT has its own environment in `.venv`. One broker each, then three brokers each, are
measured in turn with the cases of `bench.broker` and `bench.cluster`. The ratio is above 1 where
this checkout is faster, for latencies below 1. Nothing is saved.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

from bench.load import MB, Case, Load, Topic
from bench.results import median, spread
from bench.side_by_side import in_turn
from tests.e2e.penstock_cluster import PenstockCluster
from tests.e2e.penstock_process import PenstockProcess

ROUNDS = int(os.environ.get("PENSTOCK_BENCH_ROUNDS", "5"))
PRODUCED = int(os.environ.get("PENSTOCK_BENCH_MB", "200")) * MB
LATENCY_S = 8
SHAPES = [(size, partitions) for size in (100, 1_000) for partitions in (1, 6)]
BATCHES: tuple[tuple[str, ...], ...] = ((), ("batch.size=16384",))
IN_SYNC = MappingProxyType({"min.insync.replicas": "2"})
DEFAULTS: MappingProxyType[str, str] = MappingProxyType({})
Peers = Mapping[str, PenstockProcess | PenstockCluster]
NOW, BEFORE = "now", "before"


def row(name: str, figures: dict[str, list[float]], digits: int = 0) -> None:
    now, before = figures[NOW], figures[BEFORE]
    ratio = median(now) / median(before)
    print(
        f"| {name} | {ratio:.2f} | {spread(now, digits)} | {spread(before, digits)} |", flush=True
    )


def produce(peers: Peers, load: Load, shapes: list[tuple[int, int]], factor: int) -> None:
    def once(peer: PenstockProcess | PenstockCluster, case: Case) -> list[float]:
        configs = IN_SYNC if factor > 1 else DEFAULTS
        with Topic(peer.bootstrap, case.partitions, factor, configs) as topic:
            sent = load.produce(peer.bootstrap, topic, case.size, case.count, case.settings)
            return case.rates(sent)

    for settings in BATCHES:
        for size, partitions in shapes:
            case = Case(size, partitions, PRODUCED, settings)
            megabytes, _records = in_turn(peers, ROUNDS, 1, partial(once, case=case))
            row(f"produce, {case.name}, MB/s", megabytes)


def consume(peers: Peers, load: Load) -> None:
    for size, partitions in SHAPES:
        case = Case(size, partitions, PRODUCED)
        with ExitStack() as stack:
            topics = {
                peer.bootstrap: stack.enter_context(Topic(peer.bootstrap, partitions))
                for peer in peers.values()
            }
            for servers, topic in topics.items():
                load.produce(servers, topic, size, case.count)

            def once(
                peer: PenstockProcess | PenstockCluster,
                case: Case = case,
                topics: dict[str, str] = topics,
            ) -> list[float]:
                topic = topics[peer.bootstrap]
                read = load.consume(peer.bootstrap, topic, case.partitions, case.count)
                return case.rates(read)

            megabytes, _records = in_turn(peers, ROUNDS, 1, once)
        row(f"consume, {case.name}, MB/s", megabytes)


def latency(peers: Peers, load: Load, factor: int) -> None:
    def once(peer: PenstockProcess | PenstockCluster) -> tuple[float, ...]:
        with Topic(peer.bootstrap, 1, factor, IN_SYNC if factor > 1 else DEFAULTS) as topic:
            return tuple(load.latency(peer.bootstrap, topic, 1, 1_000, LATENCY_S))

    for name, figures in zip(("p50", "p99"), in_turn(peers, ROUNDS, 1, once), strict=False):
        row(f"end to end, 1,000 records/s, {name}, ms", figures, 2)


def measure(peers: Peers, load: Load, factor: int) -> None:
    try:
        for peer in peers.values():
            peer.start()
        print(f"\n| {'three brokers' if factor > 1 else 'one broker'} | ratio | now | before |")
        print("|---|---|---|---|", flush=True)
        produce(peers, load, SHAPES if factor == 1 else [(100, 6), (1_000, 6)], factor)
        if factor == 1:
            consume(peers, load)
        latency(peers, load, factor)
    finally:
        for peer in peers.values():
            peer.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the earlier checkout")
    parser.add_argument("--only", choices=("broker", "cluster"))
    arguments = parser.parse_args()
    command = arguments.other.resolve() / ".venv" / "bin" / "penstock"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(directory)
        if arguments.only != "cluster":
            broker = PenstockProcess(directory / "before")
            broker.command = command
            measure({NOW: PenstockProcess(directory / "now"), BEFORE: broker}, load, 1)
        if arguments.only != "broker":
            (directory / "three-now").mkdir()
            (directory / "three-before").mkdir()
            cluster = PenstockCluster(directory / "three-before")
            cluster.penstock = command
            measure({NOW: PenstockCluster(directory / "three-now"), BEFORE: cluster}, load, 3)


if __name__ == "__main__":
    main()
