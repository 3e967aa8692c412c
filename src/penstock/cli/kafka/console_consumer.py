"""kafka-console-consumer.sh: write the records of a topic to standard output."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.consume import take_first
from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import exclude_both, given_settings, with_settings
from penstock.errors import KafkaError
from penstock.ids import NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.consumer.completed_fetch import ConsumerRecord
    from penstock.client.consumer.consumer import Consumer, StartOffset
    from penstock.client.consumer.group_consumer import GroupConsumer

_PURPOSE = "This tool helps to read data from Kafka topics and outputs it to standard output."
_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: server to connect to"),
    "topic": Option("The topic to consume.", "String: topic"),
    "include": Option(
        "A regular expression of the topics to consume.", "String: Java regex (String)"
    ),
    "partition": Option(
        "Only this partition; starts at the end unless --offset is given.", "Integer: partition"
    ),
    "offset": Option(
        "The start offset: a number, earliest or latest. Needs --partition.",
        "String: consume offset",
    ),
    "from-beginning": Option("Start at the first record if the group has no committed offset."),
    "max-messages": Option("Exit after this many records.", "Integer: num_messages"),
    "timeout-ms": Option("Exit if no record arrives for this time.", "Long: timeout_ms"),
    "group": Option("The consumer group.", "String: consumer group id"),
    "isolation-level": Option("read_uncommitted or read_committed.", "String"),
    "formatter": Option(f"Only {_FORMATTER}.", "String: class"),
    "property": Option("Deprecated; use --formatter-property.", "String: prop"),
    "formatter-property": Option(
        "print.timestamp, print.key, print.offset, print.partition, print.headers, print.value, "
        "key.separator, line.separator, "
        "headers.separator, null.literal.",
        "String: prop",
    ),
    "consumer-property": Option("Deprecated; use --command-property.", "String: consumer_prop"),
    "command-property": Option("A consumer property: name=value.", "String: consumer_prop"),
    "consumer.config": Option("Deprecated; use --command-config.", "String: config file"),
    "command-config": Option("A properties file for the consumer.", "String: config file"),
    "skip-message-on-error": Option("Continue if a record cannot be formatted."),
    "enable-systest-events": Option("Accepted and ignored."),
}
_FORMATTERS = (_FORMATTER, "kafka.tools.DefaultMessageFormatter")
_TRUE = "true"


@dataclass(frozen=True, slots=True)
class Formatter:
    """Formats records as Kafka's DefaultMessageFormatter does."""

    timestamp: bool
    key: bool
    offset: bool
    partition: bool
    headers: bool
    value: bool
    separator: bytes
    line_end: bytes
    headers_separator: bytes
    null: bytes

    @staticmethod
    def of(settings: Mapping[str, str]) -> Formatter:
        def flag(name: str, default: str = "false") -> bool:
            return settings.get(name, default).strip().lower() == _TRUE

        def text(name: str, default: str) -> bytes:
            return settings.get(name, default).encode()

        return Formatter(
            flag("print.timestamp"),
            flag("print.key"),
            flag("print.offset"),
            flag("print.partition"),
            flag("print.headers"),
            flag("print.value", _TRUE),
            text("key.separator", "\t"),
            text("line.separator", "\n"),
            text("headers.separator", ","),
            text("null.literal", "null"),
        )

    def line(self, record: ConsumerRecord) -> bytes:
        cells: list[bytes] = []
        if self.timestamp:
            cells.append(
                b"NO_TIMESTAMP"
                if record.timestamp == NO_TIMESTAMP
                else b"CreateTime:%d" % record.timestamp
            )
        if self.partition:
            cells.append(b"Partition:%d" % record.partition)
        if self.offset:
            cells.append(b"Offset:%d" % record.offset)
        if self.headers:
            pairs = [key.encode() + b":" + self._or_null(value) for key, value in record.headers]
            cells.append(self.headers_separator.join(pairs) if pairs else b"NO_HEADERS")
        if self.key:
            cells.append(self._or_null(record.key))
        if self.value:
            cells.append(self._or_null(record.value))
        return self.separator.join(cells) + self.line_end

    def _or_null(self, data: bytes | None) -> bytes:
        return self.null if data is None else data


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    written = [0]
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        _check(options)
        exclude_both(options, "consumer.config", "command-config")
        file = "command-config" if options.has("command-config") else "consumer.config"
        settings = given_settings(options, file, "consumer-property", "command-property")
        formatter = Formatter.of(given_settings(options, None, "property", "formatter-property"))
        with_settings(
            options.value("bootstrap-server") or "",
            settings,
            lambda client: _consume(client, options, settings, formatter, written),
        )
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(
            f"Error processing message, terminating consumer process: {java_text(error)}",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        pass
    print(f"Processed a total of {written[0]} messages", file=sys.stderr)
    return 0


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("topic") == options.has("include"):
        options.usage(
            "Exactly one of --include/--topic is required." + ("" if options.has("topic") else " ")
        )
    if options.has("partition") and options.has("include"):
        options.usage("The topic is required when partition is specified.")
    if options.has("offset"):
        if not options.has("partition"):
            options.usage("The partition is required when offset is specified.")
        if options.has("from-beginning"):
            options.usage("Options from-beginning and offset cannot be specified together.")
    if options.has("group") and options.has("partition"):
        options.usage("Options group and partition cannot be specified together.")
    formatter = options.value("formatter")
    if formatter is not None and formatter not in _FORMATTERS:
        raise Refused(
            f"--formatter {formatter} is not supported: Java classes cannot be loaded. Only "
            f"{_FORMATTER} is supported"
        )


async def _consume(
    client: Client,
    options: Options,
    settings: Mapping[str, str],
    formatter: Formatter,
    written: list[int],
) -> None:
    from penstock.client.offsets import IsolationLevel

    level = options.value("isolation-level") or settings.get("isolation.level", "read_uncommitted")
    if level not in (levels := {known.name.lower(): known for known in IsolationLevel}):
        raise Refused(
            f"Invalid value {level} for configuration isolation.level: String must be one of: "
            "read_committed, read_uncommitted"
        )
    start = _start(options, settings)
    topics = await _topics(client, options)
    group = options.value("group") or settings.get("group.id")
    if group is not None and not options.has("partition"):
        async with client.group_consumer(
            group, topics, start=start, isolation=levels[level]
        ) as member:
            await _show(member, options, formatter, written)
        return
    async with client.consumer(isolation=levels[level]) as consumer:
        partition = options.number("partition")
        partitions = [
            TopicPartition(topic, info.index)
            for topic in topics
            for info in (await client.cluster.topic(topic)).partitions
            if partition is None or info.index == partition
        ]
        await consumer.assign(dict.fromkeys(partitions, start))
        await _show(consumer, options, formatter, written)


def _start(options: Options, settings: Mapping[str, str]) -> StartOffset:
    from penstock.client.consumer.consumer import BEGINNING, END

    offset = options.value("offset")
    if offset is None:
        return (
            BEGINNING
            if options.has("from-beginning") or settings.get("auto.offset.reset") == "earliest"
            else END
        )
    if offset.lower() in ("earliest", "latest"):
        return BEGINNING if offset.lower() == "earliest" else END
    if not offset.isdecimal():
        raise Refused(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return int(offset)


async def _topics(client: Client, options: Options) -> list[str]:
    topic, pattern = options.value("topic"), options.value("include")
    if topic is not None:
        return [topic]
    try:
        matching = [
            name for name in await client.admin.list_topics() if re.fullmatch(pattern or "", name)
        ]
    except re.error as error:
        raise Refused(f"{pattern} is an invalid regex: {error}") from error
    if not matching:
        raise Refused(f"no topic matches {pattern}")
    return matching


async def _show(
    consumer: Consumer | GroupConsumer, options: Options, formatter: Formatter, written: list[int]
) -> None:
    limit, timeout_ms = options.number("max-messages"), options.number("timeout-ms")
    remaining = -1 if limit is None or limit < 0 else limit
    while remaining != 0:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                records = await _poll_until_records(consumer)
        except TimeoutError:
            print(
                "Error processing message, terminating consumer process: "
                "org.apache.kafka.common.errors.TimeoutException",
                file=sys.stderr,
            )
            return
        if remaining > 0:
            records = take_first(consumer, records, remaining)
            remaining -= len(records)
        sys.stdout.buffer.write(b"".join(map(formatter.line, records)))
        sys.stdout.buffer.flush()
        written[0] += len(records)


async def _poll_until_records(consumer: Consumer | GroupConsumer) -> list[ConsumerRecord]:
    while not (records := await consumer.poll()):
        pass
    return records
