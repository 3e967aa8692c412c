"""List, describe and delete consumer groups, and reset offsets (penstock groups)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import complete_groups, complete_topics
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_line, print_table
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.group_offsets import GroupLag, PartitionLag, ResetTarget
    from penstock.client.client import Client

Name = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=complete_groups),
]
_NEVER = "never"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def list_command(as_json: AsJson = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """List all groups and their state."""

    async def work(client: Client) -> list[dict[str, str]]:
        return [
            {
                "group": group.id,
                "type": group.kind,
                "protocol": group.protocol_type,
                "state": group.state,
            }
            for group in await client.groups.list_groups()
        ]

    groups = with_client("groups list", bootstrap_server, work)
    if as_json:
        print_json(groups)
        return
    print_table(
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        [[value or "-" for value in group.values()] for group in groups],
    )


def describe_command(
    group: Name,
    over: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Measure rates over this time; 0 shows no rates.",
        ),
    ] = 5.0,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Show a group's members and assignment, its lag, its rate and the time to catch up."""

    async def work(client: Client) -> tuple[GroupLag, GroupLag]:
        import asyncio

        from penstock.client.admin.group_offsets import group_lag

        before = await group_lag(client.cluster, client.groups, group)
        if not over:
            return before, before
        if sys.stderr.isatty():
            print(f"measuring for {over:g} s …", file=sys.stderr)
        await asyncio.sleep(over)
        return before, await group_lag(client.cluster, client.groups, group)

    before, now = with_client("groups describe", bootstrap_server, work)
    rows = [_row(partition, _rates(partition, before, over)) for partition in now.partitions]
    if as_json:
        print_json(_as_object(now, rows))
        return
    described = now.group
    epoch = "" if described.epoch is None else f"  epoch {described.epoch}"
    print_line(
        f"group {group}  {described.state}  {described.kind.lower()}  assignor "
        f"{described.assignor or '-'}{epoch}"
    )
    print(f"coordinator {described.coordinator}  members {len(described.members)}  lag {now.total}")
    heading = [
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "END",
        "LAG",
        "READS/S",
        "GROWS/S",
        "CAUGHT UP IN",
        "MEMBER",
        "CLIENT",
        "HOST",
    ]
    print_table(heading, [["-" if cell is None else str(cell) for cell in row] for row in rows])


def reset_offsets_command(
    group: Name,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1]",
            help="A topic, or partitions of it; may be repeated.",
            autocompletion=complete_topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Reset to the first record.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Reset to an offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Reset to a time: 2026-01-31T12:00, milliseconds since the epoch, or an age such "
            "as 90s, 5m, 2h, 1d.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Shift by N records; negative shifts back."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the new offsets without committing them.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Reset the committed offsets of a group without members."""
    targets = (
        to_earliest,
        to_latest,
        to_offset is not None,
        to_time is not None,
        shift_by is not None,
    )
    if sum(targets) != 1:
        fail(
            "groups reset-offsets",
            "give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift-by",
        )
    if bool(topic) == all_topics:
        fail("groups reset-offsets", "give either --topic, once or more, or --all-topics")
    confirm(
        "groups reset-offsets",
        f"Replace committed offsets of group {group} (--dry-run shows them)?",
        yes=yes or dry_run,
    )

    async def work(client: Client) -> list[tuple[TopicPartition, int | None, int]]:
        from penstock.client.admin.group_offsets import reset_targets
        from penstock.client.admin.groups import OffsetAndMetadata

        await refuse_with_members(client, group)
        target = _target(client, to_earliest, to_latest, to_offset, to_time, shift_by)
        committed = await client.groups.fetch_offsets(group)
        partitions = (
            sorted(committed) if all_topics else await parse_partitions(client, topic or ())
        )
        new = await reset_targets(client.cluster, committed, partitions, target)
        if not dry_run:
            await client.groups.commit_offsets(
                group,
                {partition: OffsetAndMetadata(offset) for partition, offset in new.items()},
            )
        return [
            (
                partition,
                committed[partition].offset if partition in committed else None,
                offset,
            )
            for partition, offset in new.items()
        ]

    offsets = with_client("groups reset-offsets", bootstrap_server, work)
    if as_json:
        print_json(
            [
                {**partition._asdict(), "before": before, "after": after, "committed": not dry_run}
                for partition, before, after in offsets
            ]
        )
        return
    print_table(
        ["TOPIC", "PARTITION", "OFFSET", "WOULD BE" if dry_run else "NOW"],
        [
            [
                partition.topic,
                str(partition.partition),
                "-" if before is None else str(before),
                str(after),
            ]
            for partition, before, after in offsets
        ],
    )


def delete_command(
    group: Name, yes: Yes = False, bootstrap_server: BootstrapServer = LOCAL
) -> None:
    """Delete a group without members, and its offsets."""
    confirm("groups delete", f"Delete group {group} and its committed offsets?", yes=yes)
    with_client("groups delete", bootstrap_server, lambda client: client.groups.delete_group(group))
    print(f"Deleted group {group}.")


def _target(
    client: Client,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
) -> ResetTarget:
    from penstock.cli.consume import parse_time
    from penstock.client.admin.group_offsets import (
        ShiftBy,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTimestamp,
    )

    if to_earliest:
        return ToEarliest()
    if to_latest:
        return ToLatest()
    if to_offset is not None:
        return ToOffset(to_offset)
    if to_time is not None:
        return ToTimestamp(parse_time(to_time, client.cluster.world.clock.now_ms()))
    return ShiftBy(shift_by or 0)


async def refuse_with_members(client: Client, group: str) -> None:
    """Refuse a group with members, which would overwrite the offsets with their own commits.

    A group that does not exist may be given offsets.
    """
    from penstock.errors import ErrorCode, KafkaError

    try:
        members = (await client.groups.describe_group(group)).members
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if members:
        clients = ", ".join(sorted({f"{member.client_id} on {member.host}" for member in members}))
        raise CommandFailed(
            f"group {group} has active members, which would overwrite its offsets: stop them "
            f"first ({clients})"
        )


async def parse_partitions(
    client: Client, words: list[str] | tuple[str, ...]
) -> list[TopicPartition]:
    """Parse TOPIC, meaning all its partitions, and TOPIC:0,1."""
    partitions: list[TopicPartition] = []
    for word in words:
        name, colon, numbers = word.rpartition(":") if ":" in word else (word, "", "")
        info = await client.cluster.topic(name)
        if not colon:
            partitions += [TopicPartition(name, partition.index) for partition in info.partitions]
        elif all(number.isdecimal() for number in numbers.split(",")):
            partitions += [
                TopicPartition(name, info.partition(int(number)).index)
                for number in numbers.split(",")
            ]
        else:
            raise CommandFailed(f"{word!r} is not a list of partitions: give TOPIC or TOPIC:0,1,2")
    return list(dict.fromkeys(partitions))


def _rates(now: PartitionLag, before: GroupLag, over: float) -> tuple[float, float] | None:
    """Return the records consumed and produced per second."""
    earlier = next(
        (lag for lag in before.partitions if lag.partition == now.partition is not None), None
    )
    if (
        not over
        or earlier is None
        or now.committed is None
        or earlier.committed is None
        or now.end is None
        or earlier.end is None
    ):
        return None
    consumed = now.committed.offset - earlier.committed.offset
    return consumed / over, (now.end - earlier.end) / over


def _row(lag: PartitionLag, rates: tuple[float, float] | None) -> list[Any]:
    partition, member = lag.partition, lag.member
    return [
        partition and partition.topic,
        partition.partition if partition else None,
        lag.committed and lag.committed.offset,
        lag.end,
        lag.lag,
        rates and round(rates[0], 1),
        rates and round(rates[1], 1),
        rates and time_to_catch_up(lag.lag or 0, *rates),
        member and member.id,
        member and member.client_id,
        member and member.host,
    ]


def time_to_catch_up(lag: int, reads: float, grows: float) -> str:
    if lag <= 0:
        return "0 s"
    if reads <= grows:
        return _NEVER
    seconds = lag / (reads - grows)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


def _as_object(now: GroupLag, rows: list[list[Any]]) -> dict[str, Any]:
    keys = (
        "topic",
        "partition",
        "offset",
        "end",
        "lag",
        "reads_per_s",
        "grows_per_s",
        "caught_up_in",
        "member",
        "client",
        "host",
    )
    group = now.group
    return {
        "group": group.id,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "id": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
            }
            for member in group.members
        ],
        "lag": now.total,
        "partitions": [dict(zip(keys, row, strict=True)) for row in rows],
    }
