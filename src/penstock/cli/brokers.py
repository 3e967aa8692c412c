"""List the brokers of a cluster (penstock brokers)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import LOCAL, BootstrapServer, table, with_client

if TYPE_CHECKING:
    from penstock.client.client import Client


def list_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array instead of a table.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """List the registered brokers, including fenced ones."""

    async def work(client: Client) -> list[dict[str, Any]]:
        cluster = await client.admin.describe_cluster(with_fenced=True)
        return [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "state": "fenced" if broker.fenced else "live",
                "controller": broker.id == cluster.controller_id,
            }
            for broker in sorted(cluster.brokers, key=lambda broker: broker.id)
        ]

    brokers = with_client("brokers list", bootstrap_server, work)
    if as_json:
        print(json.dumps(brokers, separators=(",", ":")))
        return
    rows = [
        [
            str(broker["id"]),
            f"{broker['host']}:{broker['port']}",
            broker["rack"] or "-",
            broker["state"],
        ]
        for broker in brokers
    ]
    for line in table(["ID", "ADDRESS", "RACK", "STATE"], rows):
        print(line)
