"""penstock elect-leaders: gives partitions back to their preferred leaders, or to whoever is
left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, with_client
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client


def elect_leaders_command(
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The partitions of this topic; without it, of all."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="This partition alone; may be repeated."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where nobody in sync is alive, elect another replica: records may be lost.",
        ),
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Elects leaders: the preferred ones or, where a partition has none left in sync, any."""

    async def work(client: Client) -> list[str]:
        from penstock.client.admin.admin_client import ElectionType

        if partition and topic is None:
            raise CommandFailed("--partition needs --topic")
        partitions = None if topic is None else await _partitions(client, topic, partition or [])
        outcomes = await client.admin.elect_leaders(
            ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED, partitions
        )
        failed = {
            one: error
            for one, error in outcomes.items()
            if error and error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
        if failed:
            raise CommandFailed(
                "; ".join(f"{one}: {error}" for one, error in sorted(failed.items()))
            )
        return [str(one) for one, error in sorted(outcomes.items()) if error is None]

    elected = with_client("elect-leaders", bootstrap_server, work)
    print(
        f"Elected leaders of {', '.join(elected)}."
        if elected
        else "No partition needs an election."
    )


async def _partitions(client: Client, topic: str, indexes: list[int]) -> list[TopicPartition]:
    (info,) = await client.admin.describe_topics([topic])
    return [
        TopicPartition(topic, info.partition(one).index)
        for one in indexes or range(len(info.partitions))
    ]
