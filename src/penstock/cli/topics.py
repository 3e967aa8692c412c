"""penstock topics: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, fail, parse_pairs, with_client
from penstock.ids import uuid_text

if TYPE_CHECKING:
    from penstock.client import Client, TopicInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]
Configs = Annotated[list[str] | None, typer.Option("-c", "--config", metavar="KEY=VALUE", help="A setting of the topic; may be repeated.")]


def create_command(
    name: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions; without it, the broker's num.partitions.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="How many replicas of each; without it, the broker's default.")
    ] = None,
    config: Configs = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Creates a topic."""

    async def work(client: Client) -> None:
        configs = parse_pairs(config or (), "setting")
        await client.admin.create_topic(name, partitions=partitions or -1, replication_factor=replication_factor or -1, configs=configs)

    with_client("topics create", bootstrap_server, work)
    print(f"Created topic {name}.")


def list_command(bootstrap_server: BootstrapServer = LOCAL) -> None:
    """Lists the names of all topics."""

    async def work(client: Client) -> list[str]:
        return await client.admin.list_topics()

    for name in with_client("topics list", bootstrap_server, work):
        print(name)


def describe_command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The topic's name; without it, all topics.")] = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Shows partitions, replicas and settings of a topic, or of all."""

    async def work(client: Client) -> list[str]:
        topics = await client.admin.describe_topics(None if name is None else [name])
        return [line for topic in topics for line in _describe(topic, await _own_configs(client, topic.name))]

    for line in with_client("topics describe", bootstrap_server, work):
        print(line)


def alter_command(
    name: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many partitions the topic is to have in all.")] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A setting to return to its default; may be repeated.")
    ] = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Adds partitions, and sets or deletes settings."""
    if partitions is None and not config and not delete_config:
        fail("topics alter", "nothing to alter: give --partitions, -c or --delete-config")

    async def work(client: Client) -> None:
        from penstock.client import Resource

        put = parse_pairs(config or (), "setting")
        both = put.keys() & set(delete_config or ())
        if both:
            raise CommandFailed(f"the setting {min(both)} cannot be both set and deleted")
        # Settings first: they are checked as a whole, and unlike partitions they can be taken back.
        if put or delete_config:
            await client.admin.alter_configs(Resource.TOPIC, name, put=put, delete=delete_config or ())
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


async def _own_configs(client: Client, name: str) -> dict[str, str | None]:
    from penstock.client import ConfigSource, Resource

    entries = await client.admin.describe_configs(Resource.TOPIC, name)
    return {one.name: one.value for one in sorted(entries, key=lambda one: one.name) if one.source == ConfigSource.TOPIC}


def _describe(topic: TopicInfo, configs: dict[str, str | None]) -> list[str]:
    factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    settings = ",".join(f"{key}={value}" for key, value in configs.items())
    fields = [f"Topic: {topic.name}", f"TopicId: {uuid_text(topic.id)}", f"PartitionCount: {len(topic.partitions)}"]
    lines = ["\t".join([*fields, f"ReplicationFactor: {factor}", f"Configs: {settings}"])]
    for one in topic.partitions:
        leader = "none" if one.leader < 0 else str(one.leader)
        replicas, in_sync = (",".join(map(str, ids)) for ids in (one.replicas, one.isr))
        lines.append(f"\tPartition: {one.index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {in_sync}")
    return lines
