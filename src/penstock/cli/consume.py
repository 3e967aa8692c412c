"""Write the records of a topic to standard output, one per line (penstock consume).

Nothing else is written to standard output.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import complete_groups, complete_topics
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, with_client
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.consumer.completed_fetch import ConsumerRecord
    from penstock.client.consumer.consumer import Consumer, OffsetSpec
    from penstock.client.consumer.group_consumer import GroupConsumer

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_LARGEST_TIME_MS = 2**53


def consume_command(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to consume.", autocompletion=complete_topics
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Consume as a member of this group, which assigns the partitions and stores the "
            "offsets.",
            autocompletion=complete_groups,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this partition.")
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start at the first record. Default: only new records."
        ),
    ] = False,
    offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Start at this offset of the partition.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start at a time: 2026-01-31T12:00, milliseconds since the epoch, or an age such "
            "as 90s, 5m, 2h, 1d.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Exit after this many records.")
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option("--exit-at-end", help="Exit at the current end of the partitions."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each record with its metadata as a JSON object.")
    ] = False,
    isolation: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="read_committed skips records of aborted and open transactions.",
        ),
    ] = "read_uncommitted",
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Write the records of a topic to standard output."""
    if isolation not in _ISOLATION_LEVELS:
        fail("consume", f"{isolation!r} is not one of {' and '.join(_ISOLATION_LEVELS)}")
    if from_beginning + (offset is not None) + (since is not None) > 1:
        fail("consume", "--from-beginning, --offset and --since exclude each other: give only one")
    if group is not None and (
        partition is not None or offset is not None or since is not None or exit_at_end
    ):
        fail(
            "consume",
            "--partition, --offset, --since and --exit-at-end cannot be used with --group: the "
            "group assigns partitions and offsets (see penstock groups reset-offsets)",
        )

    async def work(client: Client) -> None:
        from penstock.client.consumer.consumer import BEGINNING, END, OffsetSpec
        from penstock.client.offsets import IsolationLevel

        start: int | OffsetSpec = BEGINNING if from_beginning else END
        level = IsolationLevel[isolation.upper()]
        if group is not None:
            await client.cluster.topic(topic)
            async with client.group_consumer(
                group, [topic], start=start, isolation=level
            ) as member:
                await _write_records(member, None, max_messages, as_json=as_json)
            return
        if since is not None:
            start = OffsetSpec(parse_time(since, client.cluster.world.clock.now_ms()))
        elif offset is not None:
            start = offset
        partitions = await _partitions(client, topic, partition, by_offset=offset is not None)
        async with client.consumer(isolation=level) as consumer:
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
            f"topic {topic} has {len(info.partitions)} partitions: give --partition with --offset"
        )
    return [TopicPartition(topic, partition_info.index) for partition_info in info.partitions]


async def _write_records(
    consumer: Consumer | GroupConsumer,
    ends: dict[TopicPartition, int] | None,
    max_records: int | None,
    *,
    as_json: bool,
) -> None:
    remaining = max_records
    while ends is None or any(
        consumer.positions[partition] < end for partition, end in ends.items()
    ):
        records = await consumer.poll()
        if ends is not None:
            records = [
                record
                for record in records
                if record.offset < ends[TopicPartition(record.topic, record.partition)]
            ]
        if remaining is not None:
            records = take_first(consumer, records, remaining)
        sys.stdout.buffer.write(b"".join(_line(record, as_json=as_json) for record in records))
        sys.stdout.buffer.flush()
        if remaining is not None:
            remaining -= len(records)
            if not remaining:
                return


def take_first(
    consumer: Consumer | GroupConsumer, records: list[ConsumerRecord], count: int
) -> list[ConsumerRecord]:
    """Return the first records, and set the consumer's positions back to the others, so that a
    group does not commit them."""
    for record in reversed(records[count:]):
        consumer.positions[TopicPartition(record.topic, record.partition)] = record.offset
    return records[:count]


def _line(record: ConsumerRecord, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n"
    return (b"null" if record.value is None else record.value) + b"\n"


def as_object(record: ConsumerRecord) -> dict[str, Any]:
    """Return a record for JSON; bytes that are not UTF-8 become {"base64": ...}."""
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
    """Parse a time into milliseconds since the epoch; a date without a zone is local time."""
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if ago:
        return max(now_ms - int(ago[1]) * _UNITS_MS[ago[2]], 0)
    if re.fullmatch(r"\d{1,16}", text) and int(text) < _LARGEST_TIME_MS:
        return int(text)
    try:
        time_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise CommandFailed(
            f"{text!r} is not a time: give a time such as 2026-01-31T12:00, milliseconds since the "
            "epoch, or an age such as 90s, 5m, 2h, 1d"
        ) from error
    if time_ms < 0:
        raise CommandFailed(f"{text!r} is before 1970: Kafka's timestamps start there")
    return time_ms
