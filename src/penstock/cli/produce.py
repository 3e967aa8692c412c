"""Write each line of standard input as a record (penstock produce)."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli.completion import complete_topics
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, with_client
from penstock.limits import MAX_PRODUCED_LINE_BYTES

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.producer.accumulator import RecordMetadata

_CHUNK_BYTES = 64 * 1024


def produce_command(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to write to.", autocompletion=complete_topics
        ),
    ],
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Separates key and value in a line. Default: records have no key.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "-H",
            "--header",
            metavar="KEY=VALUE",
            help="A header for every record; may be repeated.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = LOCAL,
) -> None:
    """Write each line of standard input as a record."""

    async def work(client: Client) -> None:
        headers = _headers(header or [])
        separator = key_separator.encode() if key_separator is not None else None
        if separator == b"":
            raise CommandFailed("--key-separator is empty")
        failures: list[BaseException] = []

        def done(future: asyncio.Future[RecordMetadata]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                failures.append(error)

        number = 0
        problem: str | None = None
        async with client.producer() as producer:
            async for line in read_lines(sys.stdin.buffer):
                number += 1
                key, value = split_line(line, separator)
                if separator is not None and key is None:
                    problem = (
                        f"line {number} has no key separator {key_separator!r}: this line and "
                        "those after it were not written"
                    )
                    break
                future = await producer.send(topic, value, key=key, headers=headers)
                future.add_done_callback(done)
                if failures:
                    break
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            problem = f"some records were not written: {failures[0]}{more}"
        if problem:
            raise CommandFailed(problem)

    with_client("produce", bootstrap_server, work)


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return key and value; the key is None if the line has no separator."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines without line endings; the last line may have none."""
    rest = b""
    async for chunk in _chunks(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > MAX_PRODUCED_LINE_BYTES:
            raise CommandFailed(f"a line is longer than {MAX_PRODUCED_LINE_BYTES} bytes")
    if rest:
        yield rest.removesuffix(b"\r")


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Read a terminal or pipe through the event loop: Ctrl-C could not end a thread that reads
    it."""
    descriptor = _pollable(stream)
    if descriptor is None:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
        return
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(descriptor)


def _pollable(stream: BinaryIO) -> int | None:
    """Return the descriptor of a pipe, socket or terminal; regular files cannot be polled."""
    try:
        descriptor = stream.fileno()
    except OSError:
        return None
    mode = os.fstat(descriptor).st_mode
    return (
        descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor) else None
    )


def _headers(texts: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    """Parse key=value headers; a key may be repeated."""
    headers = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise CommandFailed(f"{text!r} is not a header: give key=value")
        headers.append((key, value.encode()))
    return tuple(headers)
