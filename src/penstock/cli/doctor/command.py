"""The command penstock doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.cli.session import (
    INTERRUPTED,
    LOCAL,
    CommandFailed,
    Servers,
    exit_on_closed_pipe,
    security_of,
)

DEADLINE_S = 20.0
_DEFAULT_DIRECTORY = Path("penstock-data")


def doctor_command(
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Bootstrap brokers, separated by commas. Default: those of --dir, or "
            "localhost:9092.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Look at this topic only.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Find out why this consumer group does not progress."),
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Look at the transaction of this producer.")
    ] = None,
    spark_checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Find out why the Spark query of this checkpoint falls behind."
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="The directory of penstock up: its processes and logs show more. Default: "
            "penstock-data, if there is one and no --bootstrap-server is given.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where nodes serve their metrics, separated by commas: they have clocks and "
            "disks. Those of --dir are read without it.",
        ),
    ] = None,
    metrics_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="PENSTOCK_METRICS_TOKEN",
            help="The token that the nodes of --metrics ask for (penstock.metrics.token). Other "
            "users of this machine see the options of its processes: set the variable instead.",
        ),
    ] = None,
    over: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Watch offsets, groups and transactions for this time. Default: 2; 10 with "
            "--group or --spark-checkpoint.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Report what was seen after this time."),
    ] = DEADLINE_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, as docs/DOCTOR.md describes it.")
    ] = False,
) -> None:
    """Find out what is wrong with a cluster or its clients, why, and what to do.

    Exit code: 0 nothing is wrong (there may be warnings), 1 there are problems, 2 doctor could not
    look at everything and found no problem in the rest.

    Examples:

    penstock doctor --bootstrap-server broker1:9092

    penstock doctor --group billing

    penstock doctor --dir penstock-data --json
    """
    from penstock.cli.cluster.directory import DirectoryError, local_servers
    from penstock.cli.doctor.gather import Request, gather
    from penstock.cli.doctor.local import find_cluster
    from penstock.cli.doctor.report import as_json as to_json
    from penstock.cli.doctor.report import exit_code, plain_lines, rich_report
    from penstock.client.security import InvalidSecurity, secured
    from penstock.health.examine import examine
    from penstock.world.real import run

    if directory is None and bootstrap_server is None and find_cluster(_DEFAULT_DIRECTORY):
        directory = _DEFAULT_DIRECTORY
    bootstrap = bootstrap_server or LOCAL
    if directory is not None and not isinstance(bootstrap_server, Servers):
        try:
            bootstrap = local_servers(directory, bootstrap_server) or bootstrap
        except (DirectoryError, CommandFailed) as error:
            _refuse(str(error))
    request = Request(
        bootstrap,
        topic,
        group,
        transactional_id,
        spark_checkpoint,
        directory,
        over,
        timeout,
        () if metrics is None else tuple(metrics.split(",")),
        metrics_token,
        security_of(bootstrap),
    )
    try:
        seen = run(lambda world: gather(secured(world, security_of(bootstrap)), request))
    except InvalidSecurity as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    findings = examine(seen)
    try:
        if as_json:
            print(json.dumps(to_json(seen, findings), separators=(",", ":")))
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(rich_report(seen, findings))
        else:
            for line in plain_lines(seen, findings):
                print(line)
    except BrokenPipeError:
        exit_on_closed_pipe()
    raise typer.Exit(exit_code(seen, findings))


def _refuse(reason: str) -> NoReturn:
    print(f"penstock doctor: {reason}", file=sys.stderr)
    raise typer.Exit(2)
