"""Format a node's log directories, as kafka-storage.sh format does (penstock format).

Every log directory, including the metadata log's, gets a meta.properties with the cluster id, the
node id and a directory id. A controller without controller.quorum.voters also gets the first voters
of its quorum (KIP-853). With --add-scram the metadata log directory gets a bootstrap.checkpoint
with the credentials, which a new cluster begins with. Unlike Kafka, no other records are in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.config.node import ConfigError, read_node_config
from penstock.node.broker.formatting import FormatError, format_directories, scram_credentials
from penstock.node.quorum.initial_voters import InitialVotersError, choose_initial_voters


def format_command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")],
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", "-t", help="The cluster id. Default: a new random id."),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="Make this controller the only voter.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            "-I",
            help="The first voters, as id@host:port:directoryId separated by commas. The same on "
            "all of them.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option(
            "--no-initial-controllers",
            "-N",
            help="This controller joins a quorum that exists.",
        ),
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            help="A SCRAM credential of a new cluster, as "
            "'SCRAM-SHA-256=[name=alice,password=...]'. Give it to all controllers.",
        ),
    ] = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted",
            "-g",
            help="Skip directories that are already formatted.",
        ),
    ] = False,
) -> None:
    """Format the log directories of a node."""
    # Imported here because asyncio would slow the start of other commands.
    from penstock.world.real import RealDisk, RealRng

    disk = RealDisk()
    try:
        node = read_node_config(disk.read(str(config)), str(config))
        _warn(node.warnings)
        quorum = choose_initial_voters(
            node,
            standalone=standalone,
            initial_controllers=initial_controllers,
            none=no_initial_controllers,
        )
        rng = RealRng()
        format_directories(
            disk,
            rng,
            node,
            cluster_id,
            ignore_formatted=ignore_formatted,
            say=typer.echo,
            quorum=quorum,
            credentials=scram_credentials(add_scram or (), rng),
        )
    except ConfigError as error:
        _warn(error.warnings)
        _fail("\n".join(error.problems))
    except (FormatError, InitialVotersError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"Error reading {config}: {error.strerror or error}")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _fail(reason: str) -> NoReturn:
    typer.echo(reason, err=True)
    raise typer.Exit(1)
