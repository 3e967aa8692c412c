"""penstock brokers: the brokers of a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.session import LOCAL, BootstrapServer, table, with_client

if TYPE_CHECKING:
    from penstock.client.client import Client


def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Lists the brokers, those that are registered but not live included."""

    async def work(client: Client) -> list[dict[str, Any]]:
        cluster = await client.admin.describe_cluster(with_fenced=True)
        return [
            {
                "id": one.id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "state": "fenced" if one.fenced else "live",
                "controller": one.id == cluster.controller_id,
            }
            for one in sorted(cluster.brokers, key=lambda one: one.id)
        ]

    brokers = with_client("brokers list", bootstrap_server, work)
    if as_json:
        print(json.dumps(brokers, separators=(",", ":")))
        return
    rows = [
        [str(one["id"]), f"{one['host']}:{one['port']}", one["rack"] or "-", one["state"]]
        for one in brokers
    ]
    for line in table(["ID", "ADDRESS", "RACK", "STATE"], rows):
        print(line)
