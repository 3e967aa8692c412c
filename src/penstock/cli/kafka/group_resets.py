"""kafka-consumer-groups.sh --reset-offsets: parse the target, and print or commit the offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Options, Refused
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.group_offsets import ResetTarget
    from penstock.client.admin.groups import OffsetAndMetadata
    from penstock.client.client import Client

_SCENARIOS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


async def reset(client: Client, groups: list[str], options: Options) -> None:
    if sum(options.has(scenario) for scenario in _SCENARIOS) != 1:
        options.usage(
            "Option [reset-offsets] requires one of these: "
            f"{', '.join(f'[{scenario}]' for scenario in _SCENARIOS)}"
        )
    planned: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        state = await _state(client, group)
        if state in ("Empty", "Dead"):
            planned[group] = await _plan(client, group, options, alone=len(groups) == 1)
            if options.has("execute"):
                await client.groups.commit_offsets(
                    group,
                    {
                        partition: _offset_and_metadata(offset)
                        for partition, offset in planned[group].items()
                    },
                )
        else:
            print(
                f"\nError: Assignments can only be reset if the group '{group}' is inactive, but "
                f"the current state is {state}."
            )
            planned[group] = {}
    if options.has("export"):
        _print_csv(planned)
    else:
        _print_table(planned)


async def _state(client: Client, group: str) -> str:
    from penstock.errors import ErrorCode, KafkaError

    try:
        return (await client.groups.describe_group(group)).state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


async def _plan(
    client: Client, group: str, options: Options, *, alone: bool
) -> dict[TopicPartition, int]:
    from penstock.cli.groups import parse_partitions
    from penstock.client.admin.group_offsets import ToOffset, reset_targets

    committed: Mapping[TopicPartition, OffsetAndMetadata] = await client.groups.fetch_offsets(group)
    file = options.value("from-file")
    if file is not None:
        rows = _read_csv(file, group, alone=alone)
        planned: dict[TopicPartition, int] = {}
        for partition, offset in rows.items():
            planned |= await reset_targets(client.cluster, committed, [partition], ToOffset(offset))
        return planned
    partitions = (
        sorted(committed)
        if options.has("all-topics")
        else await parse_partitions(client, options.values("topic"))
    )
    return await reset_targets(client.cluster, committed, partitions, _target(client, options))


def _target(client: Client, options: Options) -> ResetTarget:
    from penstock.client.admin.group_offsets import (
        ShiftBy,
        ToCurrent,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTimestamp,
    )

    if options.has("to-earliest"):
        return ToEarliest()
    if options.has("to-latest"):
        return ToLatest()
    if options.has("to-current"):
        return ToCurrent()
    offset, shift = options.number("to-offset"), options.number("shift-by")
    duration = options.value("by-duration")
    if offset is not None:
        return ToOffset(offset)
    if shift is not None:
        return ShiftBy(shift)
    if duration is not None:
        return ToTimestamp(client.cluster.world.clock.now_ms() - _duration_ms(duration))
    return ToTimestamp(_datetime_ms(options.value("to-datetime") or ""))


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise Refused(f"Text cannot be parsed to a Duration: {text}")
    return int(
        timedelta(
            **{unit: float(value) for unit, value in found.groupdict().items() if value}
        ).total_seconds()
        * 1000
    )


def _datetime_ms(text: str) -> int:
    """Parse a time; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refused(f'Unparseable date: "{text}"') from error
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _read_csv(file: str, group: str, *, alone: bool) -> dict[TopicPartition, int]:
    """Read lines of topic,partition,offset or, for several groups,
    group,topic,partition,offset."""
    offsets: dict[TopicPartition, int] = {}
    try:
        lines = Path(file).read_text().split()
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    for line in lines:
        fields = [field.strip('"') for field in line.split(",")]
        if len(fields) == 4 and fields[0] == group:
            fields = fields[1:]
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal():
            offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
        elif len(fields) != 4 or alone:
            raise Refused(f"{file}: {line!r} is not topic,partition,offset")
    return offsets


def _offset_and_metadata(offset: int) -> OffsetAndMetadata:
    from penstock.client.admin.groups import OffsetAndMetadata

    return OffsetAndMetadata(offset)


def _print_csv(planned: dict[str, dict[TopicPartition, int]]) -> None:
    for group, offsets in planned.items():
        for partition, offset in offsets.items():
            fields = [
                *([group] if len(planned) > 1 else []),
                partition.topic,
                str(partition.partition),
                str(offset),
            ]
            print(",".join(f'"{field}"' if not field.isdecimal() else field for field in fields))


def _print_table(planned: dict[str, dict[TopicPartition, int]]) -> None:
    group_width = max([15, *(len(group) for group in planned)])
    topic_width = max(
        [15, *(len(partition.topic) for offsets in planned.values() for partition in offsets)]
    )
    if not any(planned.values()):
        return
    print(
        f"\n{'GROUP':<{group_width}} {'TOPIC':<{topic_width}} {'PARTITION':<10} {'NEW-OFFSET':<15}"
    )
    for group, offsets in planned.items():
        for partition, offset in offsets.items():
            print(
                f"{group:<{group_width}} {partition.topic:<{topic_width}} "
                f"{partition.partition:<10} {offset:<15}"
            )
