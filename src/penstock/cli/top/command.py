"""The command penstock top."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Annotated

import typer

from penstock.cli.output import AsJson, print_json
from penstock.cli.session import LOCAL, BootstrapServer, fail, with_client
from penstock.cli.top.ask import Wanted
from penstock.cli.top.live import Live
from penstock.cli.top.looks import Looks, pause_s
from penstock.cli.top.rows import SORTS
from penstock.client.client import Client

_COMMAND = "top"
_CLIENT_ID = "penstock-cli"
# A broker that does not answer within this time is shown as silent.
_REQUEST_TIMEOUT_S = 3.0
# Longer than one request: what a frozen broker did not answer is asked of another one.
_RETRY_S = _REQUEST_TIMEOUT_S + 1.0
# Topics and groups that are printed without a terminal.
_PIPED_ROWS = 100


def top_command(
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two refreshes.")
    ] = 2.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Look twice, --interval apart, print the second look, and exit."
        ),
    ] = False,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help=f"Sort by one of {', '.join(SORTS)}.")
    ] = "activity",
    name_filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="REGEX", help="Only topics and groups whose names match this."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Topics and groups to show. Default: what fits the terminal; in a pipe "
            f"{_PIPED_ROWS}.",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Show brokers, topics, and groups with their lag, and refresh them.

    On a terminal: q quits, Tab and 0 to 3 switch views, arrows scroll, s changes the order. In a
    pipe it prints plain text, or with --json an object per refresh.
    """
    if sort not in SORTS:
        fail(_COMMAND, f"{sort!r} is not one of {', '.join(SORTS)}")
    try:
        pattern = None if name_filter is None else re.compile(name_filter)
    except re.error as error:
        fail(_COMMAND, f"--filter {name_filter!r} is not a regular expression: {error}")

    async def work(client: Client) -> None:
        async with Client(
            client.cluster.world,
            bootstrap_server,
            client_id=_CLIENT_ID,
            request_timeout_s=_REQUEST_TIMEOUT_S,
            api_timeout_s=_RETRY_S,
        ) as forwarded:
            looks = Looks(client, forwarded, sort, pattern)
            if sys.stdout.isatty() and not as_json and not once:
                await Live(looks, interval, rows).run()
            else:
                await _stream(looks, interval, rows, once=once, as_json=as_json)

    with_client(
        _COMMAND,
        bootstrap_server,
        work,
        request_timeout_s=_REQUEST_TIMEOUT_S,
        api_timeout_s=_RETRY_S,
    )


async def _stream(
    looks: Looks, interval_s: float, rows: int | None, *, once: bool, as_json: bool
) -> None:
    """Print each look or, with `once`, the second one."""
    limit = rows or _PIPED_ROWS
    wanted = Wanted(max_groups=limit, pattern=looks.pattern)
    if once:
        await looks.look(wanted)
        looks.check()
        await asyncio.sleep(interval_s)
    while True:
        took_s = await looks.look(wanted)
        if once:
            looks.check()
        if as_json:
            print_json(looks.as_object(limit))
        else:
            looks.print_text(limit)
        if once:
            return
        await asyncio.sleep(pause_s(interval_s, took_s))
