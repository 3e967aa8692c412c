"""Compare 10,000 connections and 1,000 consumer groups on one broker with Apache Kafka 4, one
broker after the other.

PENSTOCK_BENCH_QUICK=1 takes a hundredth of them on Penstock only and saves no results, to check the
benchmark itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from bench.crowd_clients import HEARTBEAT_S, Crowd
from bench.load import Latency, Load, Topic
from bench.peer import Peer, new_peers, resident_mb
from bench.results import Section
from bench.side_by_side import COLUMNS, OURS, THEIRS
from bench.workdir import working_directory

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
CONNECTIONS, GROUPS = (100, 10) if QUICK else (10_000, 1_000)
RATE, LATENCY_S = 1_000, 2 if QUICK else 15
INTRO = (
    f"One broker, alone on the machine, one run. First {CONNECTIONS:,} connections that stay idle "
    f"after ApiVersions, then {GROUPS:,} classic groups whose members send a heartbeat every "
    f"{HEARTBEAT_S:g} s. *Rebalance*: a second member joins each group at once. Latency is end to "
    f"end of {RATE:,} records a second of another client, with linger 0."
)


class Measured(NamedTuple):
    alone: Latency
    connected_s: float
    connected_kb: float
    connected: Latency
    joined_s: float
    grouped: Latency
    rebalanced_s: float
    rebalanced_mb: float


def main() -> None:
    section = Section("crowd", "make bench ONLY=crowd", INTRO)
    with working_directory() as directory:
        load = Load(directory)
        found = {
            name: measured(peer, load)
            for name, peer in new_peers(directory).items()
            if name == OURS or not QUICK
        }
    section.table(*COLUMNS)
    values: tuple[tuple[str, Callable[[Measured], float]], ...] = (
        ("end to end before, p50, ms", lambda it: it.alone.p50),
        ("end to end before, p99, ms", lambda it: it.alone.p99),
        (f"{CONNECTIONS:,} connections opened, s", lambda it: it.connected_s),
        (f"memory for each of {CONNECTIONS:,} connections, KB", lambda it: it.connected_kb),
        (f"end to end with {CONNECTIONS:,} connections, p50, ms", lambda it: it.connected.p50),
        (f"end to end with {CONNECTIONS:,} connections, p99, ms", lambda it: it.connected.p99),
        (f"{GROUPS:,} groups stable, s", lambda it: it.joined_s),
        (f"end to end with {GROUPS:,} groups too, p50, ms", lambda it: it.grouped.p50),
        (f"end to end with {GROUPS:,} groups too, p99, ms", lambda it: it.grouped.p99),
        (f"rebalance of {GROUPS:,} groups, s", lambda it: it.rebalanced_s),
        ("resident memory in the end, MB", lambda it: it.rebalanced_mb),
    )
    for label, value in values:
        ours, theirs = value(found[OURS]), value(found[THEIRS]) if THEIRS in found else None
        section.row(
            label,
            f"**{ours / theirs:.2f}**" if theirs else "",
            f"{ours:,.2f}",
            f"{theirs:,.2f}" if theirs else "",
            "",
        )
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def measured(peer: Peer, load: Load) -> Measured:
    peer.start()
    try:
        with Crowd(peer.bootstrap) as crowd:

            def latency() -> Latency:
                with Topic(peer.bootstrap, 1) as topic:
                    return load.latency(peer.bootstrap, topic, 1, RATE, LATENCY_S)

            latency()  # warms the broker up
            alone = latency()
            before_mb = resident_mb(peer.pid)
            connected_s = crowd.connect(CONNECTIONS)
            connected_kb = (resident_mb(peer.pid) - before_mb) * 1024 / CONNECTIONS
            connected = latency()
            joined_s = crowd.join(GROUPS)
            grouped = latency()
            rebalanced_s = crowd.rebalance()
            in_the_end_mb = resident_mb(peer.pid)
    finally:
        peer.kill()
    return Measured(
        alone,
        connected_s,
        connected_kb,
        connected,
        joined_s,
        grouped,
        rebalanced_s,
        in_the_end_mb,
    )
