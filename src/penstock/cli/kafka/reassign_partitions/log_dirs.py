"""Moves of replicas between log directories, for kafka-reassign-partitions.sh."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.kafka.options import Refused
from penstock.cli.kafka.reassign_partitions.json_files import ReassignmentError, Replica
from penstock.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.ids import TopicPartition

# A replica that moves to another broker gets its directory once it is there.
_RETRY_S = 0.1


class ReplicaLogDirs(NamedTuple):
    """The directories of a replica: the current one, and that of its move; None if there is no such
    directory."""

    current: str | None
    future: str | None


async def replica_log_dirs(
    client: Client, replicas: Iterable[Replica]
) -> dict[Replica, ReplicaLogDirs]:
    """Return the directories of the replicas on live brokers."""
    from penstock.client.rebalance.observe import read_log_dirs

    by_broker: dict[int, list[TopicPartition]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.broker, []).append(replica.partition)
    await client.cluster.retry(lambda: client.cluster.topics([]))
    live = sorted(by_broker.keys() & client.cluster.metadata.brokers.keys())
    partitions = list({partition for broker in live for partition in by_broker[broker]})
    found = await read_log_dirs(client, live, partitions)
    directories: dict[Replica, ReplicaLogDirs] = {}
    for broker, log_dirs in found.items():
        for partition in by_broker[broker]:
            paths: dict[bool, str] = {}
            for log_dir in log_dirs:
                info = log_dir.replicas.get(partition)
                if info is not None:
                    paths[info.is_future] = log_dir.path
            directories[Replica(broker, partition)] = ReplicaLogDirs(
                paths.get(False), paths.get(True)
            )
    return directories


def state_line(replica: Replica, target: str, directories: ReplicaLogDirs | None) -> str:
    """Return the line of --verify."""
    partition, broker = replica.partition, replica.broker
    if directories is None:
        return (
            f"Partition {partition} cannot be found in any live log directory on broker {broker}."
        )
    if directories.current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker."
        )
    if directories.future is None:
        if directories.current == target:
            return f"Reassignment of replica {replica} completed successfully."
        return (
            f"Partition {partition} on broker {broker} is not being moved from log dir "
            f"{directories.current} to {target}."
        )
    if directories.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    return (
        f"Partition {partition} on broker {broker} is being moved to log dir {directories.future} "
        f"instead of {target}."
    )


def is_active(directories: ReplicaLogDirs | None) -> bool:
    return directories is not None and None not in directories


async def start_moves(client: Client, targets: Mapping[Replica, str], timeout_ms: int) -> None:
    """Start all moves. Raises Refused if some replicas are not on their brokers in time."""
    clock = client.cluster.world.clock
    deadline_s = clock.monotonic() + timeout_ms / 1000
    pending = dict(targets)
    while True:
        for replica in await _start_some(client, pending):
            print(
                f"Successfully started moving log directory to {pending.pop(replica)} for replica "
                f"{replica.partition} with broker {replica.broker} "
            )
        if not pending:
            return
        if clock.monotonic() >= deadline_s:
            raise Refused(
                f"Timed out before log directory move{'' if len(pending) == 1 else 's'} could be "
                f"started for: {','.join(map(str, sorted(pending)))}"
            )
        await asyncio.sleep(_RETRY_S)


async def _start_some(client: Client, pending: Mapping[Replica, str]) -> list[Replica]:
    """Request the moves and return those that began."""
    from penstock.client.admin.log_dirs import alter_replica_log_dirs

    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for replica, path in pending.items():
        by_broker.setdefault(replica.broker, {})[replica.partition] = path
    started = []
    for broker, paths in sorted(by_broker.items()):
        for partition, error in (
            await alter_replica_log_dirs(client.cluster, broker, paths)
        ).items():
            replica = Replica(broker, partition)
            if error is None:
                started.append(replica)
            elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise ReassignmentError(f"Failed to alter dir for {replica}") from error
    return sorted(started)
