"""Describe the controller quorum as kafka-metadata-quorum.sh does (penstock quorum)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import LOCAL, BootstrapServer, with_client
from penstock.ids import NO_UUID, uuid_text

if TYPE_CHECKING:
    from penstock.client.admin.quorum import QuorumInfo, QuorumReplica
    from penstock.client.client import Client

_HEADING = [
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
]


def describe_command(
    replication: Annotated[
        bool,
        typer.Option("--replication", help="Show the replication state of every replica."),
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Show the leader, voters and observers of the controller quorum."""

    async def work(client: Client) -> list[str]:
        quorum = await client.admin.describe_quorum()
        if replication:
            return replication_lines(quorum, client.cluster.world.clock.now_ms())
        return status_lines((await client.admin.describe_cluster()).id, quorum)

    for line in with_client("quorum describe", bootstrap_server, work):
        print(line)


def status_lines(cluster_id: str, quorum: QuorumInfo) -> list[str]:
    leader = quorum.leader
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    values = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": _lag_ms(leader, slowest),
        "CurrentVoters": _replicas(quorum.voters),
        "CurrentObservers": _replicas(quorum.observers),
    }
    return [f"{name + ':':<23} {value}" for name, value in values.items()]


def replication_lines(quorum: QuorumInfo, now_ms: int | None) -> list[str]:
    """Return one line per replica; with `now_ms`, timestamps are shown relative to it."""
    leader = quorum.leader
    followers = [voter for voter in quorum.voters if voter.id != leader.id]
    rows = [_HEADING]
    for status, replicas in (
        ("Leader", [leader]),
        ("Follower", followers),
        ("Observer", quorum.observers),
    ):
        rows += [_row(replica, leader, status, now_ms) for replica in replicas]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADING))]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _row(
    replica: QuorumReplica, leader: QuorumReplica, status: str, now_ms: int | None
) -> list[str]:
    return [
        str(replica.id),
        uuid_text(replica.directory_id),
        str(replica.log_end_offset),
        str(leader.log_end_offset - replica.log_end_offset),
        _time(replica.last_fetch_ms, now_ms),
        _time(replica.last_caught_up_ms, now_ms),
        status,
    ]


def _time(time_ms: int, now_ms: int | None) -> str:
    return str(time_ms) if now_ms is None or time_ms < 0 else f"{max(now_ms - time_ms, 0)} ms ago"


def _lag_ms(leader: QuorumReplica, slowest: QuorumReplica) -> int:
    if leader.id == slowest.id:
        return 0
    if leader.last_caught_up_ms < 0 or slowest.last_caught_up_ms < 0:
        return -1
    return leader.last_caught_up_ms - slowest.last_caught_up_ms


def _replicas(replicas: Iterable[QuorumReplica]) -> str:
    return f"[{', '.join(map(_replica, replicas))}]"


def _replica(replica: QuorumReplica) -> str:
    """Static voters have no directory id."""
    fields = [f'"id": {replica.id}']
    if replica.directory_id != NO_UUID:
        fields.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
    if replica.endpoints:
        endpoints = ", ".join(f'"{endpoint}"' for endpoint in replica.endpoints)
        fields.append(f'"endpoints": [{endpoints}]')
    return f"{{{', '.join(fields)}}}"
