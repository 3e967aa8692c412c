"""This checkout beside an earlier one, in one run: `python -m bench.before OTHER_CHECKOUT`.

OTHER_CHECKOUT has its own environment in `.venv`. One broker each, then three brokers each, are
measured in turn with the cases of `bench.broker` and `bench.cluster`. A ratio is the median of the
ratios of the rounds. It is above 1 where this checkout is faster; for latencies and CPU time, below
1. CPU is that of all brokers for the same load: it shows a difference of a few percent that the
throughput of clients and brokers on two shared cores does not show. Nothing is saved.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

from bench.load import MB, Case, Load, Topic
from bench.peer import cpu_s
from bench.results import spread
from bench.side_by_side import in_turn, ratio_by_round
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
    ratio = ratio_by_round(now, before)
    print(
        f"| {name} | {ratio:.2f} | {spread(now, digits)} | {spread(before, digits)} |", flush=True
    )


def rows(name: str, figures: list[dict[str, list[float]]]) -> None:
    """Print the throughput of a load, and the CPU time of the brokers for it."""
    row(f"{name}, MB/s", figures[0])
    row(f"{name}, CPU s/GB", figures[1], 3)


def loaded(
    peer: PenstockProcess | PenstockCluster, case: Case, load: Callable[[], float]
) -> list[float]:
    """Return MB/s and the CPU time of the brokers for a GB. `load` returns its duration."""
    assert peer.process is not None
    began = cpu_s(peer.process.pid)
    megabytes, _records = case.rates(load())
    return [megabytes, (cpu_s(peer.process.pid) - began) / (case.size * case.count / 1e9)]


def produce(peers: Peers, load: Load, shapes: list[tuple[int, int]], factor: int) -> None:
    def once(peer: PenstockProcess | PenstockCluster, case: Case) -> list[float]:
        configs = IN_SYNC if factor > 1 else DEFAULTS
        with Topic(peer.bootstrap, case.partitions, factor, configs) as topic:
            produce = partial(load.produce, peer.bootstrap, topic, case.size, case.count)
            return loaded(peer, case, partial(produce, case.settings))

    for settings in BATCHES:
        for size, partitions in shapes:
            case = Case(size, partitions, PRODUCED, settings)
            rows(f"produce, {case.name}", in_turn(peers, ROUNDS, 1, partial(once, case=case)))


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
                consume = partial(load.consume, peer.bootstrap, topic)
                return loaded(peer, case, partial(consume, case.partitions, case.count))

            figures = in_turn(peers, ROUNDS, 1, once)
        rows(f"consume, {case.name}", figures)


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
