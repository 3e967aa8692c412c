"""Client session, error reporting and tables shared by the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from penstock.client.servers import Servers, security_of
from penstock.errors import KafkaError
from penstock.health.wording import printable

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")

__all__ = ["Servers", "security_of"]

INTERRUPTED = 130

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        help="Bootstrap brokers as host:port, separated by commas.",
        metavar="HOST:PORT",
    ),
]
BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        help="Bootstrap controllers as host:port, instead of brokers.",
        metavar="HOST:PORT",
    ),
]
LOCAL = "localhost:9092"


def read_client_settings(file: Path) -> dict[str, str]:
    """Return the settings of a client's properties file. Raises CommandFailed, without values."""
    from penstock.config.properties import PropertiesError, decode_properties

    try:
        entries = decode_properties(file.read_bytes(), str(file)).entries
    except PropertiesError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror or error}") from error
    return {name: entry.value for name, entry in entries.items()}


class CommandFailed(Exception):
    """The command failed; the message is reported in one line."""


def with_client(
    command: str,
    bootstrap: str,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    request_timeout_s: float = 30.0,
    api_timeout_s: float | None = None,
    controllers: str | None = None,
) -> T:
    """Run `work` with a client of brokers or, if they are given, of `controllers`.

    Errors are reported in one line on stderr with exit code 1. Ctrl-C exits silently.
    """
    # Imported here because asyncio and the messages would slow the start of other commands.
    from penstock.client.client import Client
    from penstock.world import World
    from penstock.world.real import run

    async def main(world: World) -> T:
        try:
            client = Client(
                world,
                bootstrap if controllers is None else controllers,
                client_id="penstock-cli",
                request_timeout_s=request_timeout_s,
                api_timeout_s=api_timeout_s,
                controllers=controllers is not None,
                security=security_of(bootstrap),
            )
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
    """Exit after the reader closed the pipe; discard buffered output, which Python would write at
    exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(0)


def fail(command: str, reason: str) -> NoReturn:
    print(printable(f"penstock {command}: {' '.join(reason.split())}"), file=sys.stderr)
    raise typer.Exit(1)


def parse_pairs(texts: Iterable[str], noun: str) -> dict[str, str]:
    """Parse key=value texts; each key once, the value may be empty."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise CommandFailed(f"{text!r} is not a {noun}: give key=value")
        if key in pairs:
            raise CommandFailed(f"the {noun} {key} is given twice")
        pairs[key] = value
    return pairs


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines with columns as wide as their widest cell."""
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
