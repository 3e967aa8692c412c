"""kafka-topics.sh: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, parse_uuid, uuid_text

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.metadata import TopicInfo

_ACTIONS = ("create", "alter", "list", "describe", "delete")
_REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_KAFKA_CONFIGS = " (To alter topic configurations, the kafka-configs tool can be used.)"
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: server to connect to"),
    "command-config": Option(
        "A properties file for the client.", "String: command config property file"
    ),
    "list": Option("List all topics."),
    "create": Option("Create a new topic."),
    "delete": Option("Delete topics."),
    "alter": Option(f"Alter the number of partitions.{_KAFKA_CONFIGS}"),
    "describe": Option("Show topics and their partitions."),
    "topic": Option(
        "The topic to create, alter, describe or delete; a regular expression except with "
        "--create.",
        "String: topic",
    ),
    "topic-id": Option("The id of the topic to describe.", "String: topic-id"),
    "config": Option("A config of the created topic; may be repeated.", "String: name=value"),
    "delete-config": Option("No longer supported since 4.0.", "String: name"),
    "partitions": Option(
        "The number of partitions; the default is the cluster's num.partitions.",
        "Integer: # of partitions",
    ),
    "replication-factor": Option(
        "The number of replicas; the default is the cluster's default.replication.factor.",
        "Integer",
    ),
    "replica-assignment": Option(
        "The brokers of each partition: replicas separated by colons, partitions by commas.",
        "String: 1:2,2:3",
    ),
    "under-replicated-partitions": Option(
        "With --describe: only partitions with replicas out of sync."
    ),
    "unavailable-partitions": Option("With --describe: only partitions without a live leader."),
    "under-min-isr-partitions": Option(
        "With --describe: only partitions below min.insync.replicas."
    ),
    "at-min-isr-partitions": Option("With --describe: only partitions at min.insync.replicas."),
    "topics-with-overrides": Option("With --describe: only topics with overridden configs."),
    "if-exists": Option(
        "With --alter, --delete and --describe: do nothing if the topic does not exist."
    ),
    "if-not-exists": Option("With --create: do nothing if the topic exists."),
    "exclude-internal": Option("With --list and --describe: omit internal topics."),
    "partition-size-limit-per-response": Option(
        "The maximum number of partitions per response.", "Integer"
    ),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, "Create, delete, describe, or change a topic.")
        _check(options)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    try:
        with_admin(
            options.value("bootstrap-server") or "",
            options.value("command-config"),
            lambda client: _act(client, options),
        )
    except KafkaError as error:
        return _failed(error.message)
    except Refused as refused:
        return _failed(str(refused))
    return 0


def _failed(reason: str) -> int:
    print(f"Error while executing topic command : {reason}")
    return 1


def _check(options: Options) -> None:
    if sum(options.has(action) for action in _ACTIONS) != 1:
        options.usage(
            "Command must include exactly one action: --list, --describe, --create, --alter or "
            "--delete"
        )
    if not options.has("bootstrap-server"):
        raise Refused("--bootstrap-server must be specified")
    if (
        options.has("describe")
        and options.has("if-exists")
        and not options.has("topic", "topic-id")
    ):
        options.usage("--topic or --topic-id is required to describe a topic")
    if not options.has("list", "describe"):
        options.require("topic")
    if options.has("alter"):
        if options.has("config"):
            options.usage(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
                f'"[alter]"{_KAFKA_CONFIGS}'
            )
        options.require("partitions")
    for name, allowed in {
        "config": ("alter", "create"),
        "partitions": ("alter", "create"),
        "replication-factor": ("create",),
        "replica-assignment": ("create", "alter"),
        "if-exists": ("alter", "delete", "describe"),
        "if-not-exists": ("create",),
        "exclude-internal": ("list", "describe"),
        "topics-with-overrides": ("describe",),
        **dict.fromkeys(_REPORTS, ("describe",)),
    }.items():
        options.exclude(name, *(action for action in _ACTIONS if action not in allowed))
    if options.has("create"):
        options.exclude("replica-assignment", "partitions", "replication-factor")
    for name in _REPORTS:
        options.exclude(
            name, "topics-with-overrides", *(other for other in _REPORTS if other != name)
        )


async def _act(client: Client, options: Options) -> None:
    if options.has("create"):
        await _create(client, options)
    elif options.has("alter"):
        await _alter(client, options)
    elif options.has("list"):
        print("\n".join(topic.name for topic in await _matching(client, options)))
    elif options.has("describe"):
        await _describe(client, options)
    else:
        for topic in await _existing(client, options):
            await client.admin.delete_topic(topic.name)


async def _create(client: Client, options: Options) -> None:
    name = options.value("topic") or ""
    partitions, factor = options.number("partitions"), options.number("replication-factor")
    configs = dict(_pair(text) for text in options.values("config"))
    assignments = parse_assignment(options.value("replica-assignment"))
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or "
            "underscore ('_') could collide. To avoid issues it is best to use either, but not "
            "both."
        )
    if factor is not None and not 1 <= factor < 2**15:
        raise Refused("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise Refused("The partitions must be greater than 0")
    try:
        await client.admin.create_topic(
            name,
            partitions=partitions or -1,
            replication_factor=factor or -1,
            assignments=assignments,
            configs=configs,
        )
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not options.has("if-not-exists"):
            raise
        return
    print(f"Created topic {name}.")


async def _alter(client: Client, options: Options) -> None:
    count = options.number("partitions") or 0
    assignments = parse_assignment(options.value("replica-assignment"))
    for topic in await _existing(client, options):
        await client.admin.create_partitions(
            topic.name, count, assignments[len(topic.partitions) :]
        )


async def _describe(client: Client, options: Options) -> None:
    from penstock.cli.topics import PartitionFilter, describe_lines

    partition_filter = PartitionFilter(
        under_replicated=options.has("under-replicated-partitions"),
        unavailable=options.has("unavailable-partitions"),
        under_min_isr=options.has("under-min-isr-partitions"),
        at_min_isr=options.has("at-min-isr-partitions"),
        overrides=options.has("topics-with-overrides"),
    )
    existing = await _existing(client, options)
    page_size = options.number("partition-size-limit-per-response")
    if existing:
        names = [topic.name for topic in existing]
        topics = await (
            client.admin.describe_partitions(names, page_size)
            if page_size
            else client.admin.describe_partitions(names)
        )
        for line in await describe_lines(client, topics, partition_filter):
            print(line)


async def _existing(client: Client, options: Options) -> list[TopicInfo]:
    """Return the matching topics; none is an error unless --if-exists is given."""
    topics = await _matching(client, options)
    if topics or options.has("if-exists"):
        return topics
    topic_id = _topic_id(options)
    if topic_id is not None:
        raise Refused(f"TopicId '{topic_id}' does not exist as expected")
    if options.value("topic"):
        raise Refused(f"Topic '{options.value('topic')}' does not exist as expected")
    return topics


async def _matching(client: Client, options: Options) -> list[TopicInfo]:
    topics = [
        topic
        for topic in await client.admin.describe_topics()
        if not (options.has("exclude-internal") and topic.internal)
    ]
    topic_id, pattern = _topic_id(options), options.value("topic")
    if topic_id is not None:
        return [topic for topic in topics if uuid_text(topic.id) == topic_id]
    if pattern is None:
        return topics
    # As in Kafka, a comma means "or", and whitespace and surrounding quotes are ignored.
    expression = re.sub(r"\s+", "", pattern).replace(",", "|").strip("\"'")
    try:
        return [topic for topic in topics if re.fullmatch(expression, topic.name)]
    except re.error as error:
        raise Refused(f"{expression} is an invalid regex: {error}.") from error


def _topic_id(options: Options) -> str | None:
    """Return the given topic id; as in Kafka, the zero id counts as none."""
    text = options.value("topic-id")
    if text is None or not options.has("describe"):
        return None
    try:
        return text if parse_uuid(text) != NO_UUID else None
    except ValueError as error:
        raise Refused(
            f"Input string `{text}` cannot be decoded as a base64-encoded UUID: {error}"
        ) from error


def _pair(text: str) -> tuple[str, str]:
    parts = re.split(r"\s*=\s*", text)
    if len(parts) != 2 or not parts[1]:
        raise Refused(
            "requirement failed: Invalid topic config: all configs to be added must be in the "
            'format "key=val".'
        )
    return parts[0].strip(), parts[1].strip()


def parse_assignment(text: str | None) -> list[list[int]]:
    """Parse the brokers of each partition from 1:2,2:3."""
    assignment: list[list[int]] = []
    for number, part in enumerate(text.split(",") if text else []):
        try:
            brokers = [int(broker) for broker in part.split(":")]
        except ValueError:
            raise Refused(f'For input string: "{part}"') from None
        duplicates = [broker for broker in dict.fromkeys(brokers) if brokers.count(broker) > 1]
        if duplicates:
            raise Refused(
                "Partition replica lists may not contain duplicate entries: "
                f"{','.join(map(str, duplicates))}"
            )
        assignment.append(brokers)
        if len(brokers) != len(assignment[0]):
            raise Refused(f"Partition {number} has different replication factor: {brokers}")
    return assignment
