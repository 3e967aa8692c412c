"""python -m bench.many_metadata PARTITIONS: time the metadata of many partitions in one controller.

Prints a JSON object of measurements: the load of a snapshot, an election, the fencing of a broker
with a replica of each partition, one ISR change; total times, and the longest time for which the
event loop would be held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.peer import resident_mb
from penstock.config.node import read_node_config
from penstock.controller.brokers.fencing import fence_broker, leave_isrs
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.elections import rebalance_leaders
from penstock.controller.partitions.leader_and_isr import each_partition, isr_memberships
from penstock.limits import DECIDED_PARTITIONS_A_TURN
from penstock.log.directory import LogDirectory
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.snapshot_file import snapshot_batches
from penstock.node.quorum.snapshot_store import SnapshotStore
from penstock.protocol.internal.metadata_nodes import RegisterBrokerRecord
from penstock.protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from penstock.raft.log import OffsetAndEpoch
from penstock.world import World
from penstock.world.real import run

TOPIC_PARTITIONS = 1_000
BROKERS = (1, 2, 3)
_PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:8,CONTROLLER://localhost:9
"""
SNAPSHOT = OffsetAndEpoch(10_000_000, 1)


def main(partitions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        path = _snapshot(partitions, Path(name))
        print(json.dumps(run(lambda world: _measure(world, path))))


def _snapshot(partitions: int, directory: Path) -> Path:
    """Write a snapshot without an image in this process's memory."""
    command = [sys.executable, "-m", "bench.many_metadata", str(partitions), str(directory)]
    subprocess.run(command, check=True)
    return directory


def _write(partitions: int, directory: Path) -> None:
    image = MetadataImage.empty().replay(_records(partitions), SNAPSHOT.offset - 1)[0]
    store = directory / f"{SNAPSHOT.offset:020d}-{SNAPSHOT.epoch:010d}.checkpoint"
    with store.open("wb") as file:
        for batch, _count in snapshot_batches(image, SNAPSHOT.epoch, 0):
            file.write(batch)


def _records(partitions: int) -> Iterator[object]:
    directories = {broker: UUID(int=500 + broker) for broker in BROKERS}
    for broker in BROKERS:
        yield RegisterBrokerRecord(
            broker_id=broker,
            broker_epoch=broker,
            incarnation_id=UUID(int=900 + broker),
            fenced=False,
            log_dirs=(directories[broker],),
        )
    for number in range(-(-partitions // TOPIC_PARTITIONS)):
        topic_id = UUID(int=10_000 + number)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(min(TOPIC_PARTITIONS, partitions - number * TOPIC_PARTITIONS)):
            first = (number + index) % len(BROKERS)
            replicas = (*BROKERS[first:], *BROKERS[:first])
            yield PartitionRecord(
                topic_id=topic_id,
                partition_id=index,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                directories=tuple(directories[replica] for replica in replicas),
            )


async def _measure(world: World, directory: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    before_mb = resident_mb(os.getpid())
    log_directory = LogDirectory(str(directory), UUID(int=1))
    store = SnapshotStore(world, log_directory, str(directory))
    started = time.perf_counter()
    image = await store.load(SNAPSHOT)
    found["load of a snapshot, s"] = f"{time.perf_counter() - started:.1f}"
    count = sum(len(topic.partitions) for topic in image.topics.values())
    grown = resident_mb(os.getpid()) - before_mb
    found["memory of the image, MB"] = f"{grown:,.0f} ({grown * 2**20 / count:.0f} bytes each)"
    topic = next(iter(image.topics.values()))
    change = PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=topic.partitions[0].isr)
    found["one ISR change, ms"] = f"{_timed(lambda: image.replay([change], image.offset + 1)):.2f}"
    context = ControllerContext.of(read_node_config(_PROPERTIES, "bench"), world.rng.uuid)
    image = _in_slices(found, "fencing of a broker", image, _fencing(context))
    unfenced = _with_broker(image)
    _in_slices(found, "election of its preferred leaders", unfenced, _rebalance(context))
    return found


Decide = Callable[[MetadataImage], ControllerResult[Any] | None]


def _fencing(context: ControllerContext) -> Decide:
    """Return what the active controller decides in each turn of the event loop (see
    `PartitionSlices`)."""
    partitions: Iterator[tuple[UUID, int]] | None = None
    ended = False

    def decide(image: MetadataImage) -> ControllerResult[Any] | None:
        nonlocal partitions, ended
        if ended:
            return None
        if partitions is None:
            partitions = each_partition(isr_memberships(image, 1))
        some = list(islice(partitions, DECIDED_PARTITIONS_A_TURN))
        ended = not some
        return leave_isrs(image, 1, some, context) if some else fence_broker(image, 1, context)

    return decide


def _rebalance(context: ControllerContext) -> Decide:
    def decide(image: MetadataImage) -> ControllerResult[Any] | None:
        decision = rebalance_leaders(image, context, DECIDED_PARTITIONS_A_TURN)
        return decision if decision.records else None

    return decide


def _with_broker(image: MetadataImage) -> MetadataImage:
    """Return the image with the fenced broker back in all ISRs."""
    records: list[object] = [
        RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=image.offset + 1,
            incarnation_id=UUID(int=999),
            fenced=False,
            log_dirs=(UUID(int=501),),
        )
    ]
    records += [
        PartitionChangeRecord(topic_id=topic.id, partition_id=index, isr=state.replicas)
        for topic in islice(image.topics.values(), 10)
        for index, state in topic.partitions.items()
    ]
    return image.replay(records, image.offset + len(records))[0]


def _in_slices(
    found: dict[str, str], label: str, image: MetadataImage, decide: Decide
) -> MetadataImage:
    longest, changed = 0.0, 0
    began = time.perf_counter()
    while True:
        started = time.perf_counter()
        decision = decide(image)
        if decision is not None:
            image = image.replay(decision.records, image.offset + len(decision.records))[0]
            changed += len(decision.records)
        longest = max(longest, time.perf_counter() - started)
        if decision is None:
            break
    found[f"{label}, {changed:,} records, s"] = f"{time.perf_counter() - began:.1f}"
    found[f"{label}, longest turn, ms"] = f"{longest * 1000:.0f}"
    return image


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _write(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]))
