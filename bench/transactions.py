"""Compare transactions with Apache Kafka 4, with three brokers each, in one run.

PENSTOCK_BENCH_QUICK=1 runs everything once with little data and saves no results, to check the
benchmark itself.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType

import confluent_kafka

from bench.cluster_peers import BROKERS, ClusterPeer, new_cluster
from bench.load import MB, Load, Topic, Transactions
from bench.results import Section
from bench.side_by_side import COLUMNS, OURS, THEIRS, in_turn, row

QUICK = os.environ.get("PENSTOCK_BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 5
WARM_UPS = 0 if QUICK else 1
TARGET = "1.5"
IN_SYNC = MappingProxyType({"min.insync.replicas": "2"})
SIZE = 100
# Transactions a round, by the number of partitions of each.
COUNTS = {1: 20, 10: 20, 100: 10} if QUICK else {1: 100, 10: 60, 100: 20}
CONSUMED_PARTITIONS = 6
# The transactions that read_committed consumers read, by the number of records of each.
CONSUMED = 50_000 if QUICK else 1_000_000
RECORDS_EACH = (10_000, 1_000)
ABORTED = 10
# By default librdkafka pauses for a second when its queue is full, which hides the brokers.
READ_COMMITTED = ("isolation.level=read_committed", "fetch.queue.backoff.ms=5")
# Otherwise the batches of the faster broker would be smaller, and its consumers slower.
FULL_BATCHES = ("linger.ms=50",)
INTRO = (
    "Penstock (`penstock up --brokers 3`) and Apache Kafka 4.3.0 (three combined KRaft nodes, 1 GB "
    "of heap each, default settings) run at the same time and are measured alternately; topics "
    f"have replication factor 3 and min.insync.replicas 2; medians of {ROUNDS} rounds with their "
    f"range after {WARM_UPS} warm-up round. The client is librdkafka "
    f"{confluent_kafka.libversion()[0]}, from confluent-kafka's wheel, driven by a C program; it "
    "shares the machine's cores with all six brokers. One producer commits one transaction after "
    f"the other, with one record of {SIZE} B in each partition and linger.ms=0. It adds partitions "
    "with AddPartitionsToTxn before it produces to them, and waits 20 ms and more before it asks "
    "again while the markers of the transaction before are being written. The consumer reads a "
    f"topic of {CONSUMED_PARTITIONS} partitions with isolation.level=read_committed and "
    "fetch.queue.backoff.ms=5 (by default librdkafka pauses for a second when its queue is full); "
    f"every {ABORTED}th transaction in it is aborted."
)


def main() -> None:
    began = time.monotonic()
    section = Section("transactions", "make bench ONLY=transactions", INTRO)
    section.table(*COLUMNS)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        load = Load(directory)
        peers = {name: new_cluster(name, directory) for name in (THEIRS, OURS)}
        try:
            for peer in peers.values():
                peer.start()
            for partitions, count in COUNTS.items():
                shape = Transactions(partitions, SIZE, partitions, count)
                measure = partial(transactions_per_second, shape=shape, load=load)
                (rates,) = in_turn(peers, ROUNDS, WARM_UPS, measure)
                row(section, label(partitions), TARGET, rates)
            for records in RECORDS_EACH:
                consume(section, peers, load, records)
        finally:
            for peer in peers.values():
                peer.kill()
    section.text(f"The run took {(time.monotonic() - began) / 60:.1f} minutes.")
    if QUICK:
        print("quick run: no results saved")
    else:
        section.save()


def label(partitions: int) -> str:
    return f"transactions per second, {partitions} partition(s) in each"


def transactions_per_second(peer: ClusterPeer, *, shape: Transactions, load: Load) -> list[float]:
    with Topic(peer.bootstrap, shape.partitions, BROKERS, IN_SYNC) as topic:
        return [shape.number / load.transactions(peer.bootstrap, topic, shape)]


def consume(section: Section, peers: dict[str, ClusterPeer], load: Load, records: int) -> None:
    """Measure read_committed consumers of topics that are written once."""
    shape = Transactions(CONSUMED_PARTITIONS, SIZE, records, CONSUMED // records, ABORTED)
    # One more transaction is not measured, and commits.
    committed = records * (1 + shape.number - -(-shape.number // ABORTED))
    with ExitStack() as stack:
        topics = {
            name: stack.enter_context(Topic(peer.bootstrap, CONSUMED_PARTITIONS, BROKERS, IN_SYNC))
            for name, peer in peers.items()
        }
        for name, peer in peers.items():
            load.transactions(peer.bootstrap, topics[name], shape, FULL_BATCHES)

        def measure(name: str) -> list[float]:
            bootstrap, topic = peers[name].bootstrap, topics[name]
            seconds = load.consume(bootstrap, topic, CONSUMED_PARTITIONS, committed, READ_COMMITTED)
            return [committed * SIZE / MB / seconds, committed / seconds / 1_000]

        megabytes, thousands = in_turn({name: name for name in peers}, ROUNDS, WARM_UPS, measure)
    text = f"consume with read_committed, {SIZE}-B records, {records:,} in each transaction"
    row(section, f"{text}, MB/s", TARGET, megabytes)
    row(section, "the same, thousand records/s", TARGET, thousands)
