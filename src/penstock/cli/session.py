"""A command's session with a cluster: the option that says where it is, and how failures are
told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")

INTERRUPTED = 130

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        help="Brokers to begin with, as host:port, separated by commas.",
        metavar="HOST:PORT",
    ),
]
LOCAL = "localhost:9092"


class CommandFailed(Exception):
    """What the user is told in one line."""


def with_client(
    command: str, bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]
) -> T:
    """Runs the work with a client. Every failure becomes one line on stderr and the exit code 1;
    Ctrl-C ends without a word."""
    # Only here: they load asyncio and the messages, which other commands' start should not pay for.
    from penstock.client.client import Client
    from penstock.world import World
    from penstock.world.real import run

    async def main(world: World) -> T:
        try:
            client = Client(world, bootstrap, client_id="penstock-cli")
        except ValueError as error:
            raise CommandFailed(str(error)) from error
        async with client:
            return await work(client)

    try:
        return run(main)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        exit_on_closed_pipe()
    except (KafkaError, CommandFailed) as error:
        fail(command, str(error))


def exit_on_closed_pipe() -> NoReturn:
    """Who read our output has enough. What is still buffered must not be written when Python
    ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(0)


def fail(command: str, reason: str) -> NoReturn:
    print(f"penstock {command}: {' '.join(reason.split())}", file=sys.stderr)
    raise typer.Exit(1)


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """key=value, each key once; the value may be empty."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise CommandFailed(f"{text!r} is no {what}: key=value is expected")
        if key in pairs:
            raise CommandFailed(f"the {what} {key} is given twice")
        pairs[key] = value
    return pairs


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as what is in them."""
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
