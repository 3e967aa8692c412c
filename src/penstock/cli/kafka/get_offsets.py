"""kafka-get-offsets.sh: print offsets of partitions as topic:partition:offset."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = "An interactive shell for getting topic-partition offsets."
_OPTIONS = {
    "bootstrap-server": Option(
        "REQUIRED: Bootstrap brokers.", "String: HOST1:PORT1,...,HOST3:PORT3"
    ),
    "command-config": Option("A properties file for the client.", "String: config file"),
    "topic": Option("A regular expression of the topics.", "String: topic"),
    "partitions": Option("Only these partitions: 0,1.", "String: partition ids"),
    "topic-partitions": Option(
        "topic:partition,... Either part may be omitted; 1-3 means 1 and 2.",
        "String: topic1:1,topic2:0-3,topic3",
    ),
    "time": Option(
        "latest (-1, the default), earliest (-2), max-timestamp (-3) or milliseconds.",
        "String: timestamp",
    ),
    "exclude-internal-topics": Option("Omit internal topics."),
}
_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}
_INTERNAL = ("__consumer_offsets", "__transaction_state")
PartitionFilter = Callable[[TopicPartition], bool]


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        options.require("bootstrap-server")
        if options.has("topic-partitions") and options.has("topic", "partitions"):
            raise Refused("--topic-partitions cannot be used with --topic or --partitions")
        time, matches = _time(options.value("time") or "latest"), _partition_filter(options)
        bootstrap, config = options.value("bootstrap-server") or "", options.value("command-config")
        for line in with_admin(bootstrap, config, lambda client: _lines(client, matches, time)):
            print(line)
    except (Refused, KafkaError) as error:
        print(
            f"Error occurred: {java_text(error) if isinstance(error, KafkaError) else error}",
            file=sys.stderr,
        )
        return 1
    return 0


async def _lines(client: Client, matches: PartitionFilter, time: int) -> list[str]:
    topics = await client.admin.describe_topics()
    partitions = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
    ]
    matching = sorted(partition for partition in partitions if matches(partition))
    if not matching:
        raise Refused("Could not match any topic-partitions with the specified filters")
    found = await client.admin.list_offsets(dict.fromkeys(matching, time))
    # Kafka's tool omits partitions without an offset for the time.
    return [
        f"{partition.topic}:{partition.partition}:{found[partition].offset}"
        for partition in matching
        if found[partition].offset >= 0
    ]


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int(text)
    except ValueError:
        kinds = "earliest | latest | max-timestamp | timestamp"
        raise Refused(
            f"Malformed time argument {text}, please use one of: {kinds} (in milliseconds)"
        ) from None


def _partition_filter(options: Options) -> PartitionFilter:
    listed = options.value("topic-partitions")
    rules = [_rule(text) for text in listed.split(",")] if listed else [_by_topic(options)]
    exclude_internal = options.has("exclude-internal-topics")
    return lambda partition: (
        any(rule(partition) for rule in rules)
        and not (exclude_internal and partition.topic in _INTERNAL)
    )


def _by_topic(options: Options) -> PartitionFilter:
    numbers = options.value("partitions")
    if numbers is not None and not all(number.isdecimal() for number in numbers.split(",")):
        raise Refused(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{numbers}"
        )
    topics = _pattern(options.value("topic") or ".*")
    return lambda partition: (
        bool(topics.fullmatch(partition.topic))
        and (numbers is None or str(partition.partition) in numbers.split(","))
    )


def _rule(text: str) -> PartitionFilter:
    topic, _colon, span = text.partition(":")
    topics, found = _pattern(topic or ".*"), re.fullmatch(r"(\d*)(-?)(\d*)", span)
    if found is None:
        raise Refused(f"Invalid partition range: {span}")
    first, dash, last = found.groups()
    low = int(first or 0)
    high = low + 1 if first and not dash else int(last) if last else 2**31
    return lambda partition: (
        bool(topics.fullmatch(partition.topic)) and low <= partition.partition < high
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise Refused(f"{text} is an invalid regex: {error}") from error
