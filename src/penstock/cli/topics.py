"""penstock topics: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import (
    LOCAL,
    BootstrapServer,
    CommandFailed,
    fail,
    parse_pairs,
    with_client,
)

if TYPE_CHECKING:
    from penstock.cli.topic_lines import Shown
    from penstock.client.client import Client
    from penstock.client.metadata import TopicInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "-c", "--config", metavar="KEY=VALUE", help="A setting of the topic; may be repeated."
    ),
]


def create_command(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="How many partitions; without it, the broker's num.partitions."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, help="How many replicas of each; without it, the broker's default."),
    ] = None,
    config: Configs = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Creates a topic."""

    async def work(client: Client) -> None:
        configs = parse_pairs(config or (), "setting")
        await client.admin.create_topic(
            name,
            partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            configs=configs,
        )

    with_client("topics create", bootstrap_server, work)
    print(f"Created topic {name}.")


def list_command(bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Lists the names of all topics."""

    async def work(client: Client) -> list[str]:
        return await client.admin.list_topics()

    for name in with_client("topics list", bootstrap_server, work):
        print(name)


def describe_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The topic's name; without it, all topics."),
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions that lack in-sync replicas.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only partitions without a live leader.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only partitions below min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only partitions that cannot spare a replica.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Shows partitions, replicas and settings of a topic, or of all."""

    async def work(client: Client) -> list[str]:
        from penstock.cli.topic_lines import Shown

        shown = Shown(
            under_replicated=under_replicated,
            unavailable=offline,
            under_min_isr=under_min_isr,
            at_min_isr=at_min_isr,
        )
        return await described(
            client, await client.admin.describe_partitions([] if name is None else [name]), shown
        )

    for line in with_client("topics describe", bootstrap_server, work):
        print(line)


async def described(client: Client, topics: list[TopicInfo], shown: Shown) -> list[str]:
    """In Kafka's form."""
    from penstock.cli.topic_lines import topic_lines
    from penstock.client.admin.configs import ConfigResourceType

    live = (
        {broker.id for broker in (await client.admin.describe_cluster()).brokers}
        if topics
        else set()
    )
    lines: list[str] = []
    for topic in topics:
        lines += topic_lines(
            topic,
            await client.admin.describe_configs(ConfigResourceType.TOPIC, topic.name),
            live,
            shown,
        )
    return lines


def alter_command(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many partitions the topic is to have in all.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A setting to return to its default; may be repeated."),
    ] = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Adds partitions, and sets or deletes settings."""
    if partitions is None and not config and not delete_config:
        fail("topics alter", "nothing to alter: give --partitions, -c or --delete-config")

    async def work(client: Client) -> None:
        from penstock.client.admin.configs import ConfigResourceType

        put = parse_pairs(config or (), "setting")
        both = put.keys() & set(delete_config or ())
        if both:
            raise CommandFailed(f"the setting {min(both)} cannot be both set and deleted")
        # Settings first: they are checked as a whole, and unlike partitions they can be taken back.
        if put or delete_config:
            await client.admin.alter_configs(
                ConfigResourceType.TOPIC, name, put=put, delete=delete_config or ()
            )
        if partitions is not None:
            await client.admin.create_partitions(name, partitions)

    with_client("topics alter", bootstrap_server, work)
    print(f"Altered topic {name}.")


def delete_command(name: Name, bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Deletes a topic and all its records."""

    async def work(client: Client) -> None:
        await client.admin.delete_topic(name)

    with_client("topics delete", bootstrap_server, work)
    print(f"Deleted topic {name}.")
