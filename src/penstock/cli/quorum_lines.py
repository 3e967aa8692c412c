"""The quorum in the words of kafka-metadata-quorum.sh describe. Asks nobody, and prints nothing."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.admin.quorum import QuorumInfo, QuorumReplica
from penstock.ids import NO_UUID, uuid_text

_HEADING = [
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
]


def status_lines(cluster_id: str, quorum: QuorumInfo) -> list[str]:
    leader = quorum.leader
    slowest = min(quorum.voters, key=lambda one: one.log_end_offset)
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
    """With the present, times are told as how long ago they were."""
    leader = quorum.leader
    followers = [one for one in quorum.voters if one.id != leader.id]
    rows = [_HEADING]
    for status, replicas in (
        ("Leader", [leader]),
        ("Follower", followers),
        ("Observer", quorum.observers),
    ):
        rows += [_row(one, leader, status, now_ms) for one in replicas]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADING))]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _row(one: QuorumReplica, leader: QuorumReplica, status: str, now_ms: int | None) -> list[str]:
    lag = leader.log_end_offset - one.log_end_offset
    times = [_time(one.last_fetch_ms, now_ms), _time(one.last_caught_up_ms, now_ms)]
    return [
        str(one.id),
        uuid_text(one.directory_id),
        str(one.log_end_offset),
        str(lag),
        *times,
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


def _replica(one: QuorumReplica) -> str:
    """Static voters have no directory."""
    directory = (
        "" if one.directory_id == NO_UUID else f', "directoryId": "{uuid_text(one.directory_id)}"'
    )
    endpoints = ", ".join(f'"{endpoint}"' for endpoint in one.endpoints)
    return (
        f'{{"id": {one.id}{directory}'
        + (f', "endpoints": [{endpoints}]' if endpoints else "")
        + "}"
    )
