"""Create, list, describe, alter and delete topics (penstock topics).

`describe_lines` gives the output of kafka-topics.sh --describe too.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import complete_topics
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json, print_line, print_table
from penstock.cli.session import (
    LOCAL,
    BootstrapServer,
    CommandFailed,
    fail,
    parse_pairs,
    with_client,
)
from penstock.ids import NO_UUID, uuid_text

if TYPE_CHECKING:
    from penstock.client.admin.configs import ConfigEntry
    from penstock.client.client import Client
    from penstock.client.metadata import PartitionInfo, TopicInfo

    Described = tuple[TopicInfo, list[ConfigEntry]]

MIN_IN_SYNC_REPLICAS = "min.insync.replicas"

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The topic's name.", autocompletion=complete_topics),
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "-c", "--config", metavar="KEY=VALUE", help="A config of the topic; may be repeated."
    ),
]


def create_command(
    name: NewName,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Number of partitions. Default: the broker's num.partitions."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of replicas. Default: the broker's default.replication.factor.",
        ),
    ] = None,
    config: Configs = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Create a topic."""

    async def work(client: Client) -> None:
        configs = parse_pairs(config or (), "config")
        await client.admin.create_topic(
            name,
            partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            configs=configs,
        )

    with_client("topics create", bootstrap_server, work)
    print(f"Created topic {name}.")


def list_command(as_json: AsJson = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """List all topics. In a pipe, only their names are printed."""

    async def work(client: Client) -> list[TopicInfo]:
        return await client.admin.describe_topics()

    topics = [_summary(topic) for topic in with_client("topics list", bootstrap_server, work)]
    if as_json:
        print_json(topics)
    elif sys.stdout.isatty():
        heading = ["NAME", "PARTITIONS", "RF", "UNDER-REPL", "OFFLINE"]
        print_table(heading, [[str(cell) for cell in topic.values()][:5] for topic in topics])
    else:
        for topic in topics:
            print(topic["name"])


def _summary(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": _factor(topic),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        "offline": sum(each.leader < 0 for each in topic.partitions),
        "internal": topic.internal,
    }


def _factor(topic: TopicInfo) -> int:
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def describe_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The topic's name. Default: all topics.",
            autocompletion=complete_topics,
        ),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated", help="Only partitions with replicas out of sync."),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only partitions without a live leader.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions below min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only partitions at min.insync.replicas.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Show partitions, replicas and configs of a topic, or of all topics."""
    partition_filter = PartitionFilter(
        under_replicated=under_replicated,
        unavailable=offline,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
    )

    async def work(client: Client) -> tuple[list[Described], set[int]]:
        topics = await client.admin.describe_partitions([] if name is None else [name])
        return await _describe(client, topics)

    described, live = with_client("topics describe", bootstrap_server, work)
    if as_json:
        print_json([_as_object(*each, live, partition_filter) for each in described])
    elif sys.stdout.isatty():
        for topic, configs in described:
            _print_topic(topic, configs, live, partition_filter)
    else:
        for topic, configs in described:
            for line in topic_lines(topic, configs, live, partition_filter):
                print(line)


async def _describe(client: Client, topics: list[TopicInfo]) -> tuple[list[Described], set[int]]:
    """Return topics with their configs, and the live brokers."""
    from penstock.client.admin.configs import ConfigResourceType

    live = (
        {broker.id for broker in (await client.admin.describe_cluster()).brokers}
        if topics
        else set()
    )
    return [
        (topic, await client.admin.describe_configs(ConfigResourceType.TOPIC, topic.name))
        for topic in topics
    ], live


async def describe_lines(
    client: Client, topics: list[TopicInfo], partition_filter: PartitionFilter
) -> list[str]:
    """Return the lines of kafka-topics.sh --describe."""
    described, live = await _describe(client, topics)
    return [
        line
        for topic, configs in described
        for line in topic_lines(topic, configs, live, partition_filter)
    ]


def _print_topic(
    topic: TopicInfo,
    configs: Sequence[ConfigEntry],
    live: Collection[int],
    partition_filter: PartitionFilter,
) -> None:
    """Print a topic as a table."""
    shown = _matching(topic, configs, live, partition_filter)
    if partition_filter.filtered and not shown:
        return
    overridden = _overridden(configs)
    print_line(
        f"{topic.name}  id {uuid_text(topic.id)}  partitions {len(topic.partitions)}  "
        f"replication factor {_factor(topic)}"
    )
    if overridden:
        print_line(f"configs {', '.join(overridden)}")
    heading = ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "ELR", "STATE"]
    rows = [
        [
            str(partition.index),
            "none" if partition.leader < 0 else str(partition.leader),
            _ids(partition.replicas),
            _ids(partition.isr) or "-",
            _ids(partition.elr) or "-",
            _state(partition, live),
        ]
        for partition in shown
    ]
    print_table(heading, rows)
    print()


def _state(partition: PartitionInfo, live: Collection[int]) -> str:
    if partition.leader not in live:
        return "offline"
    return "under-replicated" if len(partition.isr) < len(partition.replicas) else "ok"


def _as_object(
    topic: TopicInfo,
    configs: Sequence[ConfigEntry],
    live: Collection[int],
    partition_filter: PartitionFilter,
) -> dict[str, Any]:
    return {
        **_summary(topic),
        "id": uuid_text(topic.id),
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "elr": partition.elr,
                "state": _state(partition, live),
            }
            for partition in _matching(topic, configs, live, partition_filter)
        ],
        "configs": dict(config.split("=", 1) for config in _overridden(configs)),
    }


def alter_command(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="The topic's new total number of partitions.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A config to reset to its default; may be repeated."),
    ] = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Add partitions, and set or delete configs of a topic."""
    if partitions is None and not config and not delete_config:
        fail("topics alter", "nothing to alter: give --partitions, -c or --delete-config")

    async def work(client: Client) -> None:
        from penstock.client.admin.configs import ConfigResourceType

        put = parse_pairs(config or (), "config")
        both = put.keys() & set(delete_config or ())
        if both:
            raise CommandFailed(f"the config {min(both)} cannot be both set and deleted")
        # Configs first: they are validated together and, unlike partitions, can be reverted.
        if put or delete_config:
            await client.admin.alter_configs(
                ConfigResourceType.TOPIC, name, put=put, delete=delete_config or ()
            )
        if partitions is not None:
            await client.admin.create_partitions(name, partitions)

    with_client("topics alter", bootstrap_server, work)
    print(f"Altered topic {name}.")


def delete_command(name: Name, yes: Yes = False, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Delete a topic and all its records."""
    confirm("topics delete", f"Delete topic {name} and all its records?", yes=yes)

    async def work(client: Client) -> None:
        await client.admin.delete_topic(name)

    with_client("topics delete", bootstrap_server, work)
    print(f"Deleted topic {name}.")


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Selects partitions that match any of the set conditions, or all partitions if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    # Show only the headings of topics with overridden configs.
    overrides: bool = False

    @property
    def filtered(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def matches(self, partition: PartitionInfo, min_isr: int, live: Collection[int]) -> bool:
        in_sync, has_leader = len(partition.isr), partition.leader >= 0
        return (
            not self.filtered
            or (self.under_replicated and in_sync < len(partition.replicas))
            or (self.unavailable and partition.leader not in live)
            or (self.under_min_isr and (not has_leader or in_sync < min_isr))
            or (self.at_min_isr and in_sync == min_isr)
        )


def topic_lines(
    topic: TopicInfo,
    configs: Sequence[ConfigEntry],
    live: Collection[int],
    partition_filter: PartitionFilter,
) -> Iterator[str]:
    overridden = _overridden(configs)
    if not partition_filter.filtered and (overridden or not partition_filter.overrides):
        yield _heading(topic, overridden)
    if not partition_filter.overrides:
        for partition in _matching(topic, configs, live, partition_filter):
            yield _partition_line(topic, partition)


def _matching(
    topic: TopicInfo,
    configs: Sequence[ConfigEntry],
    live: Collection[int],
    partition_filter: PartitionFilter,
) -> list[PartitionInfo]:
    min_isr = next(
        (int(config.value or 1) for config in configs if config.name == MIN_IN_SYNC_REPLICAS), 1
    )
    return [
        partition
        for partition in topic.partitions
        if partition_filter.matches(partition, min_isr, live)
    ]


def _overridden(configs: Sequence[ConfigEntry]) -> list[str]:
    from penstock.config.setting import ConfigSource

    return [
        f"{config.name}={config.value or ''}"
        for config in _in_kafkas_order(configs)
        if config.source != ConfigSource.DEFAULT
    ]


def _in_kafkas_order(configs: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """Sort configs in the order of a Java HashMap, in which Kafka's tool prints them; scripts may
    compare the output."""
    buckets = 16
    while len(configs) > buckets * 3 // 4:
        buckets *= 2
    return sorted(configs, key=lambda config: _java_hash(config.name) % buckets)


def _java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFF_FFFF
    return code ^ code >> 16


def _heading(topic: TopicInfo, configs: list[str]) -> str:
    topic_id = [f"TopicId: {uuid_text(topic.id)}"] if topic.id != NO_UUID else []
    numbers = [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {_factor(topic)}"]
    return "\t".join([f"Topic: {topic.name}", *topic_id, *numbers, f"Configs: {','.join(configs)}"])


def _partition_line(topic: TopicInfo, partition: PartitionInfo) -> str:
    fields = [
        f"Partition: {partition.index}",
        f"Leader: {'none' if partition.leader < 0 else partition.leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
        f"Elr: {_ids(partition.elr)}",
        f"LastKnownElr: {_ids(partition.last_known_elr)}",
    ]
    return "\t".join(["", f"Topic: {topic.name}", *fields])


def _ids(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))
