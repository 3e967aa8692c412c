"""penstock groups: consumer groups, their members, how far they are behind, and setting their
offsets."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, table, with_client
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.group_offsets import GroupLag, PartitionLag, ResetTarget
    from penstock.client.client import Client

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
_NEVER = "never"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def list_command(as_json: AsJson = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Lists all groups with their state."""

    async def work(client: Client) -> list[dict[str, str]]:
        listed = await client.groups.list_groups()
        return [
            {"group": one.id, "type": one.kind, "protocol": one.protocol_type, "state": one.state}
            for one in listed
        ]

    groups = with_client("groups list", bootstrap_server, work)
    if as_json:
        print(json.dumps(groups, separators=(",", ":")))
        return
    for line in table(
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        [[value or "-" for value in one.values()] for one in groups],
    ):
        print(line)


def describe_command(
    group: Name,
    over: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to watch before rates are told; 0 tells none, at once.",
        ),
    ] = 5.0,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Shows a group's members, what is assigned to them, its lag, the rate it reads at and when it
    will have caught up."""

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
    rows = [_row(one, _rates(one, before, over)) for one in now.partitions]
    if as_json:
        print(json.dumps(_object(now, rows), separators=(",", ":")))
        return
    described = now.group
    epoch = "" if described.epoch is None else f"  epoch {described.epoch}"
    print(
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
    for line in table(
        heading, [["-" if cell is None else str(cell) for cell in row] for row in rows]
    ):
        print(line)


def reset_offsets_command(
    group: Name,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1]",
            help="A topic, or some of its partitions; may be repeated.",
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics that the group has offsets for.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="N", min=0, help="To an offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To a time: 2026-01-31T12:00, milliseconds since 1970, or 90s, 5m, 2h, 1d ago.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="By so many records, back where it is negative.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Sets the offsets of a group that has no members: it then reads from there."""
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

    async def work(client: Client) -> list[list[str]]:
        from penstock.client.admin.group_offsets import reset_targets
        from penstock.client.admin.groups import OffsetAndMetadata

        await refuse_with_members(client, group)
        target = _target(client, to_earliest, to_latest, to_offset, to_time, shift_by)
        committed = await client.groups.fetch_offsets(group)
        partitions = (
            sorted(committed) if all_topics else await chosen_partitions(client, topic or ())
        )
        new = await reset_targets(client.cluster, committed, partitions, target)
        if not dry_run:
            await client.groups.commit_offsets(
                group, {one: OffsetAndMetadata(at) for one, at in new.items()}
            )
        return [
            [
                one.topic,
                str(one.partition),
                str(committed[one].offset) if one in committed else "-",
                str(at),
            ]
            for one, at in new.items()
        ]

    rows = with_client("groups reset-offsets", bootstrap_server, work)
    for line in table(["TOPIC", "PARTITION", "OFFSET", "WOULD BE" if dry_run else "NOW"], rows):
        print(line)


def delete_command(group: Name, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Deletes a group that has no members, with its offsets."""
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
    """Members would go on from where they are, and commit that. A group that is not there yet may
    be given offsets."""
    from penstock.errors import ErrorCode, KafkaError

    try:
        members = (await client.groups.describe_group(group)).members
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if members:
        clients = ", ".join(sorted({f"{one.client_id} on {one.host}" for one in members}))
        raise CommandFailed(
            f"group {group} has members, whose offsets are their own: stop them first ({clients})"
        )


async def chosen_partitions(
    client: Client, words: list[str] | tuple[str, ...]
) -> list[TopicPartition]:
    """TOPIC is all its partitions, TOPIC:0,1 these."""
    chosen: list[TopicPartition] = []
    for word in words:
        name, colon, numbers = word.rpartition(":") if ":" in word else (word, "", "")
        info = await client.cluster.topic(name)
        if not colon:
            chosen += [TopicPartition(name, one.index) for one in info.partitions]
        elif all(number.isdecimal() for number in numbers.split(",")):
            chosen += [
                TopicPartition(name, info.partition(int(number)).index)
                for number in numbers.split(",")
            ]
        else:
            raise CommandFailed(f"{word!r} names no partitions: TOPIC or TOPIC:0,1,2 is expected")
    return list(dict.fromkeys(chosen))


def _rates(one: PartitionLag, before: GroupLag, over: float) -> tuple[float, float] | None:
    """Records read and records written, per second."""
    earlier = next(
        (each for each in before.partitions if each.partition == one.partition is not None), None
    )
    if (
        not over
        or earlier is None
        or one.committed is None
        or earlier.committed is None
        or one.end is None
        or earlier.end is None
    ):
        return None
    return (one.committed.offset - earlier.committed.offset) / over, (one.end - earlier.end) / over


def _row(one: PartitionLag, rates: tuple[float, float] | None) -> list[Any]:
    partition, member = one.partition, one.member
    return [
        partition and partition.topic,
        partition.partition if partition else None,
        one.committed and one.committed.offset,
        one.end,
        one.lag,
        rates and round(rates[0], 1),
        rates and round(rates[1], 1),
        rates and time_to_catch_up(one.lag or 0, *rates),
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


def _object(now: GroupLag, rows: list[list[Any]]) -> dict[str, Any]:
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
            {"id": one.id, "instance": one.instance_id, "client": one.client_id, "host": one.host}
            for one in group.members
        ],
        "lag": now.total,
        "partitions": [dict(zip(keys, row, strict=True)) for row in rows],
    }
