"""Describe the controller quorum, add and remove voters, as kafka-metadata-quorum.sh does (penstock
quorum)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_table
from penstock.cli.session import (
    LOCAL,
    BootstrapController,
    BootstrapServer,
    CommandFailed,
    fail,
    with_client,
)
from penstock.ids import NO_UUID, parse_uuid, uuid_text

if TYPE_CHECKING:
    from penstock.cli.controller_file import Controller
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
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Show the leader, voters and observers of the controller quorum."""

    async def work(client: Client) -> tuple[str, QuorumInfo, int]:
        return (
            (await client.admin.describe_cluster()).id,
            await client.admin.describe_quorum(),
            client.cluster.world.clock.now_ms(),
        )

    cluster_id, quorum, now_ms = with_client(
        "quorum describe", bootstrap_server, work, controllers=bootstrap_controller
    )
    if as_json:
        print_json(_as_object(cluster_id, quorum))
        return
    if replication and sys.stdout.isatty():
        heading = ["ID", "DIRECTORY", "LOG END", "LAG", "LAST FETCH", "CAUGHT UP", "STATUS"]
        print_table(heading, _replication_rows(quorum, now_ms))
        return
    lines = replication_lines(quorum, now_ms) if replication else status_lines(cluster_id, quorum)
    for line in lines:
        print(line)


def _as_object(cluster_id: str, quorum: QuorumInfo) -> dict[str, Any]:
    end = quorum.leader.log_end_offset

    def replica(each: QuorumReplica) -> dict[str, Any]:
        return {
            "id": each.id,
            "directory_id": uuid_text(each.directory_id),
            "endpoints": each.endpoints,
            "log_end_offset": each.log_end_offset,
            "lag": end - each.log_end_offset,
            "last_fetch_ms": each.last_fetch_ms,
            "last_caught_up_ms": each.last_caught_up_ms,
        }

    return {
        "cluster": cluster_id,
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [replica(voter) for voter in quorum.voters],
        "observers": [replica(observer) for observer in quorum.observers],
    }


DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, do nothing.")]


def add_command(
    config: Annotated[
        Path, typer.Option("--config", "-c", help="The server.properties of the controller to add.")
    ],
    dry_run: DryRun = False,
    bootstrap_server: BootstrapServer = LOCAL,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Make a controller a voter of the quorum.

    Run it on the machine of the controller, which is formatted with --no-initial-controllers and
    runs.
    """
    from penstock.cli.controller_file import ControllerFileError, read_controller

    try:
        controller = read_controller(str(config))
    except ControllerFileError as error:
        fail("quorum add", str(error))

    async def work(client: Client) -> None:
        await client.admin.add_raft_voter(
            controller.id, controller.directory_id, controller.endpoints
        )

    if not dry_run:
        with_client("quorum add", bootstrap_server, work, controllers=bootstrap_controller)
    print(added_line(controller, dry_run=dry_run))


def remove_command(
    controller_id: Annotated[int, typer.Argument(help="The id of the voter to remove.")],
    directory_id: Annotated[
        str | None,
        typer.Option("--directory-id", help="Its directory id. Default: that of the voter now."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_server: BootstrapServer = LOCAL,
    bootstrap_controller: BootstrapController = None,
) -> None:
    """Make a voter of the quorum an observer."""
    try:
        given = None if directory_id is None else parse_uuid(directory_id)
    except ValueError as error:
        fail("quorum remove", str(error))
    confirm(
        "quorum remove",
        f"Remove controller {controller_id} from the voters of the quorum?",
        yes=yes or dry_run,
    )

    async def work(client: Client) -> UUID:
        found = given
        if found is None:
            voters = {voter.id: voter for voter in (await client.admin.describe_quorum()).voters}
            if controller_id not in voters:
                raise CommandFailed(
                    f"controller {controller_id} is no voter: the voters are {sorted(voters)}"
                )
            found = voters[controller_id].directory_id
        if not dry_run:
            await client.admin.remove_raft_voter(controller_id, found)
        return found

    found = with_client("quorum remove", bootstrap_server, work, controllers=bootstrap_controller)
    print(removed_line(controller_id, found, dry_run=dry_run))


def added_line(controller: Controller, *, dry_run: bool) -> str:
    endpoints = ", ".join(map(str, controller.endpoints))
    return (
        f"{'DRY RUN of adding' if dry_run else 'Added'} controller {controller.id} with directory "
        f"id {uuid_text(controller.directory_id)} and endpoints: {endpoints}"
    )


def removed_line(controller_id: int, directory_id: UUID, *, dry_run: bool) -> str:
    # Kafka's line has two blanks here.
    done = "DRY RUN of removing " if dry_run else "Removed "
    return f"{done} KRaft controller {controller_id} with directory id {uuid_text(directory_id)}"


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
    rows = [_HEADING, *_replication_rows(quorum, now_ms)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADING))]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _replication_rows(quorum: QuorumInfo, now_ms: int | None) -> list[list[str]]:
    leader = quorum.leader
    followers = [voter for voter in quorum.voters if voter.id != leader.id]
    by_status = (
        ("Leader", [leader]),
        ("Follower", followers),
        ("Observer", quorum.observers),
    )
    return [
        _row(replica, leader, status, now_ms)
        for status, replicas in by_status
        for replica in replicas
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
