"""Compare a broker that counts for metrics, and is scraped, with one that does not, over sockets.

The load takes the same two cores as the broker, so that throughput differs by a factor from round
to round. The broker's CPU time for the same load does not: both are compared round by round.

PENSTOCK_BENCH_QUICK=1 makes one short round and saves no results, to check the benchmark itself.
"""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.load import Case, Load, Topic
from bench.peer import cpu_s, running
from bench.results import Section, spread
from bench.side_by_side import Figures, in_turn, ratio_by_round
from bench.workdir import working_directory
from tests.e2e.penstock_process import PenstockProcess, free_port

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS, WARM_UPS = (1, 0) if QUICK else (15, 1)
TOTAL = 20_000_000 if QUICK else 300_000_000
RATE, LATENCY_S = 1_000, 1 if QUICK else 5
SCRAPE_S = 5.0
ON, OFF = "with metrics", "without"
INTRO = (
    f"One broker with metrics, which is scraped every {SCRAPE_S:g} s, and one without, both "
    f"running, measured alternately; medians of {ROUNDS} rounds with their range. The ratio is the "
    "median of the ratios of the rounds. CPU is the time of the broker's threads. Aim: at most 2 "
    "percent slower."
)


def main() -> None:
    section = Section("metrics", "make bench ONLY=metrics", INTRO)
    section.table("measurement", "with / without", ON, OFF)
    with working_directory() as directory:
        load, page = Load(directory), f"http://127.0.0.1:{free_port()}"
        peers = {
            ON: PenstockProcess(directory / "on", f"penstock.metrics.listener={page}"),
            OFF: PenstockProcess(directory / "off", "penstock.metrics.listener="),
        }
        with running(peers), scraped(f"{page}/metrics"):
            _measure(section, peers, load)
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _measure(section: Section, peers: dict[str, PenstockProcess], load: Load) -> None:
    for settings in ((), ("batch.size=16384",)):
        case = Case(1_000, 6, TOTAL, settings)
        produced, produce_cpu, consumed, consume_cpu = in_turn(
            peers, ROUNDS, WARM_UPS, partial(_produce_and_consume, case=case, load=load)
        )
        _row(section, f"produce, {case.name}, MB/s", produced)
        _row(section, f"produce, {case.name}, CPU s/GB", produce_cpu, 3)
        _row(section, f"consume, {case.name}, MB/s", consumed)
        _row(section, f"consume, {case.name}, CPU s/GB", consume_cpu, 3)
    latency, cpu = in_turn(peers, ROUNDS, WARM_UPS, partial(_latency, load=load))
    _row(section, f"end to end, {RATE:,} records/s, p50, ms", latency, 3)
    _row(section, f"end to end, {RATE:,} records/s, CPU ms/s", cpu, 1)


def _produce_and_consume(peer: PenstockProcess, *, case: Case, load: Load) -> list[float]:
    gigabytes = case.size * case.count / 1e9
    with Topic(peer.bootstrap, case.partitions) as topic:
        cpu = [cpu_s(peer.pid)]
        produced_s = load.produce(peer.bootstrap, topic, case.size, case.count, case.settings)
        cpu.append(cpu_s(peer.pid))
        consumed_s = load.consume(peer.bootstrap, topic, case.partitions, case.count)
        cpu.append(cpu_s(peer.pid))
    return [
        case.rates(produced_s)[0],
        (cpu[1] - cpu[0]) / gigabytes,
        case.rates(consumed_s)[0],
        (cpu[2] - cpu[1]) / gigabytes,
    ]


def _latency(peer: PenstockProcess, *, load: Load) -> list[float]:
    with Topic(peer.bootstrap, 1) as topic:
        before = cpu_s(peer.pid)
        p50 = load.latency(peer.bootstrap, topic, 1, RATE, LATENCY_S).p50
        return [p50, (cpu_s(peer.pid) - before) / LATENCY_S * 1000]


def _row(section: Section, label: str, figures: Figures, digits: int = 0) -> None:
    on, off = figures[ON], figures[OFF]
    ratio = ratio_by_round(on, off)
    section.row(label, f"**{ratio:.3f}**", spread(on, digits), spread(off, digits))


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """Scrape a broker as Prometheus does."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_S):
            with urllib.request.urlopen(url, timeout=SCRAPE_S) as page:
                page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
