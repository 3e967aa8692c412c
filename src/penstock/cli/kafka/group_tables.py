"""Groups as kafka-consumer-groups.sh prints them, column by column."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Options, Refused
from penstock.client.routing import by_topic
from penstock.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.admin.group_offsets import PartitionLag
    from penstock.client.admin.groups import GroupDescription, GroupListing, MemberDescription
    from penstock.client.client import Client

_STATES = (
    "Empty",
    "Dead",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Unknown",
)
_TYPES = ("Classic", "Consumer")
_NARROW, _COORDINATOR, _ASSIGNMENT, _INSTANCE = 15, 25, 20, 17


def listing(groups: Iterable[GroupListing], options: Options) -> list[str]:
    """Names alone or, with --state or --type, a table."""
    shown = [one for one in groups if one.protocol_type in ("", "consumer")]
    with_type, with_state = options.has("type"), options.has("state")
    if not with_type and not with_state:
        return [one.id for one in shown]
    states, types = (
        _wanted(options.value("state"), _STATES, "state"),
        _wanted(options.value("type"), _TYPES, "types"),
    )
    shown = [
        one
        for one in shown
        if (not states or one.state in states) and (not types or one.kind in types)
    ]
    width = max([_NARROW, *(len(one.id) for one in shown)]) + 10
    lines = [f"{'GROUP':<{width}}" + f" {'TYPE':<20}" * with_type + f" {'STATE':<20}" * with_state]
    return lines + [
        f"{one.id:<{width}}" + f" {one.kind:<20}" * with_type + f" {one.state:<20}" * with_state
        for one in shown
    ]


def _wanted(text: str | None, known: Sequence[str], what: str) -> set[str]:
    if not text:
        return set()
    by_name = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")]
    if any(word not in by_name for word in words):
        raise Refused(
            f"Invalid {what} list '{text}'. Valid {what.removesuffix('s')}s are: {', '.join(known)}"
        )
    return {by_name[word] for word in words}


async def describe(client: Client, group: str, options: Options) -> None:
    from penstock.client.admin.group_offsets import group_lag

    verbose = options.has("verbose")
    try:
        lag = await group_lag(client.cluster, client.groups, group)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        print(f"\nError: Consumer group '{group}' does not exist.")
        return
    state = lag.group.state
    if state == "Empty":
        print(f"\nConsumer group '{group}' has no active members.", file=sys.stderr)
    elif state != "Stable":
        print(f"\nWarning: Consumer group '{group}' is rebalancing.", file=sys.stderr)
    if options.has("members"):
        lines = _members(lag.group, verbose=verbose)
    elif options.has("state"):
        lines = _state(lag.group, client, verbose=verbose)
    else:
        lines = _offsets(group, lag.partitions, verbose=verbose)
    for line in lines:
        print(line)


def _offsets(group: str, partitions: Sequence[PartitionLag], *, verbose: bool) -> list[str]:
    if not partitions:
        return []
    heading = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    rows = [_offset_row(group, one) for one in partitions]
    widths = [
        _widest(rows, 0),
        _widest(rows, 1),
        10,
        15,
        15,
        15,
        15,
        _widest(rows, 7),
        _widest(rows, 8),
        0,
    ]
    shown = [column for column, name in enumerate(heading) if verbose or name != "LEADER-EPOCH"]
    return [
        "",
        *(
            _line([row[column] for column in shown], [widths[column] for column in shown])
            for row in [heading, *rows]
        ),
        "",
    ]


def _offset_row(group: str, one: PartitionLag) -> list[str]:
    partition, committed, member = one.partition, one.committed, one.member
    known = committed is not None and committed.leader_epoch >= 0
    return [
        group,
        partition.topic if partition else "-",
        str(partition.partition) if partition else "-",
        str(committed.leader_epoch) if committed and known else "-",
        str(committed.offset) if committed else "-",
        "-" if one.end is None else str(one.end),
        "-" if one.lag is None else str(one.lag),
        member.id if member else "-",
        f"/{member.host.lstrip('/')}" if member else "-",
        member.client_id if member else "-",
    ]


def _members(group: GroupDescription, *, verbose: bool) -> list[str]:
    static = any(one.instance_id for one in group.members)
    heading = [
        "GROUP",
        "CONSUMER-ID",
        *["GROUP-INSTANCE-ID"] * static,
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    rows = [
        [
            group.id,
            one.id,
            *[one.instance_id or ""] * static,
            f"/{one.host.lstrip('/')}",
            one.client_id,
            str(len(one.assignment)),
        ]
        for one in group.members
    ]
    least = [_NARROW, _NARROW, *[_INSTANCE] * static, _NARROW, _NARROW, _NARROW]
    widths = [max(narrow, _widest(rows, column)) for column, narrow in enumerate(least)]
    if verbose:
        more = [
            [_number(one.epoch), _assignment(one), _number(group.epoch), _assignment(one)]
            for one in group.members
        ]
        assigned = max([_ASSIGNMENT, *(len(row[1]) for row in more)])
        heading += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        rows = [row + added for row, added in zip(rows, more, strict=True)]
        widths += [_NARROW, assigned, _NARROW, assigned]
    return ["", _line(heading, widths), *(_line(row, widths) for row in rows)]


def _assignment(member: MemberDescription) -> str:
    topics = by_topic(sorted(member.assignment)).items()
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics) or "-"


def _state(group: GroupDescription, client: Client, *, verbose: bool) -> list[str]:
    at = next(
        (
            one.id
            for one in client.cluster.metadata.brokers.values()
            if f"{one.host}:{one.port}" == group.coordinator
        ),
        "?",
    )
    coordinator = f"{group.coordinator}  ({at})"
    heading = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row = [group.id, coordinator, group.assignor or "-", group.state]
    widths = [max(_NARROW, len(group.id)), max(_COORDINATOR, len(coordinator)), 20, 20]
    if verbose:
        heading += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [_number(group.epoch), _number(group.epoch)]
        widths += [15, 25]
    return [
        "",
        _line([*heading, "#MEMBERS"], [*widths, 0]),
        _line([*row, str(len(group.members))], [*widths, 0]),
    ]


def _number(epoch: int | None) -> str:
    return "-" if epoch is None else str(epoch)


def _widest(rows: Sequence[Sequence[str]], column: int) -> int:
    return max([_NARROW, *(len(row[column]) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
