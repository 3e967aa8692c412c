"""`penstock format`: makes the directories of a node ready for it, as kafka-storage.sh format does.

Every log directory and the metadata log's gets a meta.properties with the cluster's id, the node's
and one of its own. Kafka also writes bootstrap.checkpoint, the first records of the cluster's
metadata: that comes with the metadata quorum, and so does the voter set that --standalone stands
for (a controller without voters is a quorum of its own until then).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.config.node import ConfigError, read_node_config
from penstock.node.broker.formatting import FormatError, check_standalone, format_directories


def format_command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")],
    cluster_id: Annotated[
        str | None,
        typer.Option(
            "--cluster-id", "-t", help="The id of the cluster; without it, a new random one."
        ),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This controller is a quorum of its own.")
    ] = False,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted",
            "-g",
            help="Leave formatted directories as they are, and format the others.",
        ),
    ] = False,
) -> None:
    """Format the log directories of a node."""
    # Only here: it loads asyncio and more, which the other commands' start should not pay for.
    from penstock.world.real import RealDisk, RealRng

    disk = RealDisk()
    try:
        node = read_node_config(disk.read(str(config)), str(config))
        _warn(node.warnings)
        check_standalone(node, standalone)
        format_directories(
            disk, RealRng(), node, cluster_id, ignore_formatted=ignore_formatted, say=typer.echo
        )
    except ConfigError as error:
        _warn(error.warnings)
        _fail("\n".join(error.problems))
    except FormatError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"Error reading {config}: {error.strerror or error}")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _fail(reason: str) -> NoReturn:
    typer.echo(reason, err=True)
    raise typer.Exit(1)
