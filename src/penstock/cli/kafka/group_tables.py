"""The tables of kafka-consumer-groups.sh --list and --describe."""

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
    """Return the group ids or, with --state or --type, a table."""
    listed = [group for group in groups if group.protocol_type in ("", "consumer")]
    with_type, with_state = options.has("type"), options.has("state")
    if not with_type and not with_state:
        return [group.id for group in listed]
    states = _parse_filter(options.value("state"), _STATES, "state")
    types = _parse_filter(options.value("type"), _TYPES, "types")
    listed = [
        group
        for group in listed
        if (not states or group.state in states) and (not types or group.kind in types)
    ]
    width = max([_NARROW, *(len(group.id) for group in listed)]) + 10
    lines = [f"{'GROUP':<{width}}" + f" {'TYPE':<20}" * with_type + f" {'STATE':<20}" * with_state]
    return lines + [
        f"{group.id:<{width}}"
        + f" {group.kind:<20}" * with_type
        + f" {group.state:<20}" * with_state
        for group in listed
    ]


def _parse_filter(text: str | None, known: Sequence[str], noun: str) -> set[str]:
    if not text:
        return set()
    by_name = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")]
    if any(word not in by_name for word in words):
        raise Refused(
            f"Invalid {noun} list '{text}'. Valid {noun.removesuffix('s')}s are: {', '.join(known)}"
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
    rows = [_offset_row(group, lag) for lag in partitions]
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
    columns = [column for column, name in enumerate(heading) if verbose or name != "LEADER-EPOCH"]
    return [
        "",
        *(
            _line([row[column] for column in columns], [widths[column] for column in columns])
            for row in [heading, *rows]
        ),
        "",
    ]


def _offset_row(group: str, lag: PartitionLag) -> list[str]:
    partition, committed, member = lag.partition, lag.committed, lag.member
    has_epoch = committed is not None and committed.leader_epoch >= 0
    return [
        group,
        partition.topic if partition else "-",
        str(partition.partition) if partition else "-",
        str(committed.leader_epoch) if committed and has_epoch else "-",
        str(committed.offset) if committed else "-",
        "-" if lag.end is None else str(lag.end),
        "-" if lag.lag is None else str(lag.lag),
        member.id if member else "-",
        f"/{member.host.lstrip('/')}" if member else "-",
        member.client_id if member else "-",
    ]


def _members(group: GroupDescription, *, verbose: bool) -> list[str]:
    static = any(member.instance_id for member in group.members)
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
            member.id,
            *[member.instance_id or ""] * static,
            f"/{member.host.lstrip('/')}",
            member.client_id,
            str(len(member.assignment)),
        ]
        for member in group.members
    ]
    minimum = [_NARROW, _NARROW, *[_INSTANCE] * static, _NARROW, _NARROW, _NARROW]
    widths = [max(narrow, _widest(rows, column)) for column, narrow in enumerate(minimum)]
    if verbose:
        more = [
            [
                _number(member.epoch),
                _assignment(member),
                _number(group.epoch),
                _assignment(member),
            ]
            for member in group.members
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
    broker_id = next(
        (
            broker.id
            for broker in client.cluster.metadata.brokers.values()
            if f"{broker.host}:{broker.port}" == group.coordinator
        ),
        "?",
    )
    coordinator = f"{group.coordinator}  ({broker_id})"
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
