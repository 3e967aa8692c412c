"""penstock consume: the records of a topic, one a line, on standard output. Nothing else is ever
written there."""

from __future__ import annotations

import base64
import json
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.consumer.completed_fetch import ConsumerRecord
    from penstock.client.consumer.consumer import Consumer, OffsetSpec
    from penstock.client.consumer.group_consumer import GroupConsumer

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LARGEST_TIME_MS = 2**53


def consume_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help=(
                "As a member of a group, which remembers how far it came and shares the partitions."
            ),
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="This partition alone.")
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="All records that there are; without it, only new ones."
        ),
    ] = False,
    offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="From this offset of the partition on.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=(
                "From a time on: 2026-01-31T12:00, milliseconds since 1970, or 90s, 5m, 2h, 1d ago."
            ),
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after this many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="End with the last record that is there now.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a record, with everything that it has.")
    ] = False,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed", help="Leave out what belongs to no committed transaction."
        ),
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Writes the records of a topic to standard output."""
    if from_beginning + (offset is not None) + (since is not None) > 1:
        fail(
            "consume", "--from-beginning, --offset and --since exclude each other: give one of them"
        )
    if group is not None and (
        partition is not None or offset is not None or since is not None or exit_at_end
    ):
        hint = (
            "it says itself which partitions are read, and from where (penstock groups "
            "reset-offsets)"
        )
        fail(
            "consume",
            f"--partition, --offset, --since and --exit-at-end do not go with --group: {hint}",
        )

    async def work(client: Client) -> None:
        from penstock.client.consumer.consumer import BEGINNING, END, OffsetSpec
        from penstock.client.offsets import IsolationLevel

        start: int | OffsetSpec = BEGINNING if from_beginning else END
        isolation = (
            IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        if group is not None:
            await client.cluster.topic(topic)
            async with client.group_consumer(
                group, [topic], start=start, isolation=isolation
            ) as member:
                await _write_records(member, None, max_messages, as_json=as_json)
            return
        if since is not None:
            start = OffsetSpec(parse_time(since, client.cluster.world.clock.now_ms()))
        elif offset is not None:
            start = offset
        partitions = await _partitions(client, topic, partition, by_offset=offset is not None)
        async with client.consumer(isolation=isolation) as consumer:
            await consumer.assign(dict.fromkeys(partitions, start))
            ends = await consumer.end_offsets() if exit_at_end else None
            await _write_records(consumer, ends, max_messages, as_json=as_json)

    with_client("consume", bootstrap_server, work)


async def _partitions(
    client: Client, topic: str, partition: int | None, *, by_offset: bool
) -> list[TopicPartition]:
    info = await client.cluster.topic(topic)
    if partition is not None:
        return [TopicPartition(topic, info.partition(partition).index)]
    if by_offset and len(info.partitions) > 1:
        raise CommandFailed(
            f"topic {topic} has {len(info.partitions)} partitions: --offset needs --partition too"
        )
    return [TopicPartition(topic, one.index) for one in info.partitions]


async def _write_records(
    consumer: Consumer | GroupConsumer,
    ends: dict[TopicPartition, int] | None,
    most: int | None,
    *,
    as_json: bool,
) -> None:
    left = most
    while ends is None or any(consumer.positions[one] < end for one, end in ends.items()):
        records = await consumer.poll()
        if ends is not None:
            records = [
                one
                for one in records
                if one.offset < ends[TopicPartition(one.topic, one.partition)]
            ]
        if left is not None:
            records = first_of(consumer, records, left)
        sys.stdout.buffer.write(b"".join(_line(one, as_json=as_json) for one in records))
        sys.stdout.buffer.flush()
        if left is not None:
            left -= len(records)
            if not left:
                return


def first_of(
    consumer: Consumer | GroupConsumer, records: list[ConsumerRecord], most: int
) -> list[ConsumerRecord]:
    """So many of what was polled. The consumer goes back to the others: a group must not take them
    for read."""
    for untold in reversed(records[most:]):
        consumer.positions[TopicPartition(untold.topic, untold.partition)] = untold.offset
    return records[:most]


def _line(record: ConsumerRecord, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n"
    return (b"null" if record.value is None else record.value) + b"\n"


def as_object(record: ConsumerRecord) -> dict[str, Any]:
    """Bytes that are no text are given as {"base64": ...}."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": key, "value": _text(value)} for key, value in record.headers],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. A date without a zone is local time."""
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if ago:
        return max(now_ms - int(ago[1]) * _UNITS_MS[ago[2]], 0)
    if re.fullmatch(r"\d{1,16}", text) and int(text) < _LARGEST_TIME_MS:
        return int(text)
    try:
        time_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        hint = "2026-01-31T12:00, milliseconds since 1970, or 90s, 5m, 2h, 1d ago"
        raise CommandFailed(f"{text!r} is no time: {hint} are understood") from error
    if time_ms < 0:
        raise CommandFailed(f"{text!r} is before 1970, where Kafka's time begins")
    return time_ms
