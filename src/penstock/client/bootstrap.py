"""The addresses a client starts from, and the first of them that answers.

Attempts are staggered, as in Happy Eyeballs (RFC 8305): the next server is tried when the previous
one failed, or did not answer for a moment. A frozen host accepts connections and answers nothing,
so a connection counts only once its broker answered ApiVersions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from penstock.client.connection import Connection
from penstock.client.errors import AuthenticationFailed, ConnectionFailed, NotABroker
from penstock.errors import KafkaError

Address = tuple[str, int]

DEFAULT_PORT = 9092
# A broker in the same network answers within milliseconds, one on another continent within this.
STAGGER_S = 0.25


def parse_bootstrap(text: str) -> list[Address]:
    """Parse "a:9092,b:9092,[::1]:9092"; the port defaults to 9092.

    Raises ValueError for an invalid list.
    """
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("the list of bootstrap servers is empty: give at least one host:port")
    return addresses


def _parse_address(text: str) -> Address:
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not an address: write IPv6 addresses as [::1]:9092")
        port = rest[1:] if rest else port
    elif ":" in text:
        host, _colon, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(f"{text!r} is not an address: give host:port, with a port from 1 to 65535")
    return host, int(port)


async def first_connection(
    addresses: Iterable[Address], connect: Callable[[str, int], Awaitable[Connection]]
) -> Connection:
    """Return the connection to the first broker that answers; the other attempts are cancelled.

    If all fail, raises the error of a broker that refused, NotABroker if no address can be that of
    a broker, otherwise ConnectionFailed with one reason per address.
    """

    async def attempt(host: str, port: int) -> Connection | KafkaError:
        try:
            return await connect(host, port)
        except KafkaError as error:
            return error

    remaining = list(dict.fromkeys(addresses))
    # In the order of the addresses: a set of tasks has another order in each run of a simulation.
    attempts: list[asyncio.Task[Connection | KafkaError]] = []
    try:
        while remaining or any(not task.done() for task in attempts):
            if remaining:
                host, port = remaining.pop(0)
                attempts.append(
                    asyncio.create_task(attempt(host, port), name=f"connect to {host}:{port}")
                )
            await asyncio.wait(
                [task for task in attempts if not task.done()],
                timeout=STAGGER_S if remaining else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in attempts:
                if task.done() and isinstance(result := task.result(), Connection):
                    return result
    finally:
        for task in attempts:
            task.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    raise _failure([task.result() for task in attempts])


def _failure(results: Iterable[Connection | KafkaError]) -> KafkaError:
    failures = [result for result in results if isinstance(result, KafkaError)]
    for failure in failures:
        if not isinstance(failure, ConnectionFailed):
            return failure
    refused = [one for one in failures if isinstance(one, AuthenticationFailed)]
    if refused:
        return refused[0]
    final = all(isinstance(failure, NotABroker) for failure in failures)
    message = "; ".join(failure.message for failure in failures)
    return NotABroker(message) if final else ConnectionFailed(message)
