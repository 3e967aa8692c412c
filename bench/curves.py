"""Measure what one broker costs with more partitions, connections, groups and data, and draw it.

PENSTOCK_BENCH_QUICK=1 takes a hundredth of each and saves nothing, to check the benchmark itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.crowd_clients import Crowd
from bench.load import Load, Topic
from bench.many import idle_percent
from bench.peer import EAGER, MB, resident_mb
from bench.picture import draw, exponent
from bench.results import RESULTS, Section
from bench.workdir import working_directory
from tests.e2e.penstock_process import PenstockProcess

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
_SHARE = 100 if QUICK else 1
PARTITIONS = [number // _SHARE for number in (1_000, 3_000, 10_000, 30_000, 100_000)]
CONNECTIONS = [number // _SHARE for number in (300, 1_000, 3_000, 10_000)]
GROUPS = [number // _SHARE for number in (100, 300, 1_000, 3_000)]
MEGABYTES = [max(1, number // _SHARE) for number in (250, 500, 1_000, 2_000, 4_000)]
TOPIC_PARTITIONS = 1_000
SETTLE_S = 1.0 if QUICK else 10.0
# A millisecond, a percent and so on: less than this is not told from nothing.
LEAST = 0.01
INTRO = (
    "One broker of Penstock, alone on the machine, one run, a new broker for each point. "
    "*Exponent*: how a cost grows from the first point to the last; 1 is linear, 0 does not grow. "
    "In the pictures the dashed line is linear."
)
# The costs of one point, by name.
Costs = dict[str, float]


def main() -> None:
    section = Section("curves", "make bench ONLY=curves", INTRO)
    with working_directory() as directory:
        load = Load(directory)
        for what, points, measure in (
            ("partitions", PARTITIONS, with_partitions),
            ("connections", CONNECTIONS, with_connections),
            ("groups", GROUPS, with_groups),
            ("MB of a log", MEGABYTES, lambda broker, size: with_data(broker, size, load)),
        ):
            found = [_measured(directory / f"{what}-{point}", point, measure) for point in points]
            _add(section, what, points, found)
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def _measured(
    directory: Path, point: int, measure: Callable[[PenstockProcess, int], Costs]
) -> Costs:
    broker = PenstockProcess(directory)
    broker.start()
    try:
        return measure(broker, point)
    finally:
        broker.kill()


def _add(section: Section, what: str, points: Sequence[int], found: Sequence[Costs]) -> None:
    section.table(what, *(f"{point:,}" for point in points), "exponent")
    lines = {name: [max(LEAST, costs[name]) for costs in found] for name in found[0]}
    for name, values in lines.items():
        cells = (f"{value:,.2f}" for value in values)
        section.row(name, *cells, f"{exponent(points, values):.2f}")
    if not QUICK:
        picture = RESULTS.parent / "pictures" / f"{what.replace(' ', '-')}.svg"
        draw(picture, f"cost over {what}", points, lines)
        section.text(f"![cost over {what}](pictures/{picture.name})")


def with_partitions(broker: PenstockProcess, partitions: int) -> Costs:
    before_mb = resident_mb(broker.pid)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **EAGER})
    began = time.perf_counter()
    for first in range(0, partitions, TOPIC_PARTITIONS):
        number = min(TOPIC_PARTITIONS, partitions - first)
        topic = NewTopic(f"curve-{first}", number, 1)
        for created in admin.create_topics([topic], request_timeout=120).values():
            created.result()
    created_s = time.perf_counter() - began
    time.sleep(SETTLE_S)
    costs = {
        "created, s": created_s,
        "memory above that of an empty broker, MB": resident_mb(broker.pid) - before_mb,
        "idle CPU, percent of a core": idle_percent([broker.pid])[0],
    }
    return {**costs, "started after kill -9, s": _restart_s(broker)}


def with_connections(broker: PenstockProcess, connections: int) -> Costs:
    before_mb = resident_mb(broker.pid)
    with Crowd(broker.bootstrap) as crowd:
        crowd.connect(1)  # starts the process
        opened_s = crowd.connect(connections)
        memory_mb = resident_mb(broker.pid) - before_mb
        idle = idle_percent([broker.pid])[0]
    return {
        "opened, s": opened_s,
        "memory above that of an empty broker, MB": memory_mb,
        "idle CPU, percent of a core": idle,
    }


def with_groups(broker: PenstockProcess, groups: int) -> Costs:
    with Crowd(broker.bootstrap) as crowd:
        crowd.join(1)  # creates __consumer_offsets
        before_mb = resident_mb(broker.pid)
        joined_s = crowd.join(groups)
        rebalanced_s = crowd.rebalance()
        memory_mb = resident_mb(broker.pid) - before_mb
    return {
        "all stable, s": joined_s,
        "rebalance of all, s": rebalanced_s,
        "memory above that of one group, MB": memory_mb,
    }


def with_data(broker: PenstockProcess, megabytes: int, load: Load) -> Costs:
    with Topic(broker.bootstrap, 1) as topic:
        load.produce(broker.bootstrap, topic, 1_000, megabytes * MB // 1_000)
        memory_mb = resident_mb(broker.pid)
        killed_s = _restart_s(broker)
        broker.stop()
        began = time.perf_counter()
        broker.start()
        clean_s = time.perf_counter() - began
    return {
        "started after kill -9, s": killed_s,
        "started after a clean stop, s": clean_s,
        "memory, MB": memory_mb,
    }


def _restart_s(broker: PenstockProcess) -> float:
    broker.kill()
    began = time.perf_counter()
    broker.start()
    return time.perf_counter() - began
