"""penstock quorum: the controllers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import LOCAL, BootstrapServer, with_client

if TYPE_CHECKING:
    from penstock.client.client import Client


def describe_command(
    replication: Annotated[
        bool, typer.Option("--replication", help="How far each controller and broker has come.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Shows who leads the quorum and who belongs to it."""

    async def work(client: Client) -> list[str]:
        from penstock.cli.quorum_lines import replication_lines, status_lines

        quorum = await client.admin.describe_quorum()
        if replication:
            return replication_lines(quorum, client.cluster.world.clock.now_ms())
        return status_lines((await client.admin.describe_cluster()).id, quorum)

    for line in with_client("quorum describe", bootstrap_server, work):
        print(line)
