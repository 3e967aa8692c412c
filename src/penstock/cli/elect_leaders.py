"""Elect preferred or, on request, unclean leaders (penstock elect-leaders)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import complete_topics
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.output import AsJson, print_json
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, with_client
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client


def elect_leaders_command(
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The topic. Default: all topics.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            min=0, metavar="N", help="A partition of the topic; may be repeated. Default: all."
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect a replica that is not in sync if no in-sync replica is alive. Records may "
            "be lost.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Elect the preferred replicas as leaders."""
    if unclean:
        lost = f"Elect unclean leaders of {topic or 'all topics'}, which may lose records?"
        confirm("elect-leaders", lost, yes=yes)

    async def work(client: Client) -> list[str]:
        from penstock.client.admin.admin_client import ElectionType

        if partition and topic is None:
            raise CommandFailed("--partition needs --topic")
        partitions = None if topic is None else await _partitions(client, topic, partition or [])
        results = await client.admin.elect_leaders(
            ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, partitions
        )
        failed = {
            topic_partition: error
            for topic_partition, error in results.items()
            if error and error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
        if failed:
            raise CommandFailed(
                "; ".join(f"{failure}: {error}" for failure, error in sorted(failed.items()))
            )
        return [str(elected) for elected, error in sorted(results.items()) if error is None]

    elected = with_client("elect-leaders", bootstrap_server, work)
    if as_json:
        print_json(elected)
        return
    print(
        f"Elected leaders of {', '.join(elected)}."
        if elected
        else "No partition needs an election."
    )


async def _partitions(client: Client, topic: str, indexes: list[int]) -> list[TopicPartition]:
    (info,) = await client.admin.describe_topics([topic])
    return [
        TopicPartition(topic, info.partition(index).index)
        for index in indexes or range(len(info.partitions))
    ]
