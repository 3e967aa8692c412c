"""Reads the pages of metrics of nodes: what no API of Kafka reports, such as their clocks."""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cli.cluster import layout
from penstock.client.bootstrap import parse_bootstrap
from penstock.client.errors import reason
from penstock.health.observations import SLOW_FLUSH_S, Flushes
from penstock.world import World

# A page without the series of partitions has some hundred kilobytes.
MAX_PAGE_BYTES = 8 * 1024 * 1024
_PAGE_S = 3.0
_SAMPLE = re.compile(r"^(penstock_\w+)(?:\{(.*)\})? ([\d.e+-]+)$", re.MULTILINE)
_DIRECTORY = re.compile(r'directory="((?:[^"\\]|\\.)*)"')
# What an HTTP header can have.
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_NODE_ID = re.compile(r'node_id="(\d{1,10})"')


class NoPage(Exception):
    """An address has no page of metrics; the text says why."""


@dataclass(frozen=True, slots=True)
class NodePage:
    """`clock_ahead_ms` is how much the node's clock is ahead of this machine's at least. `flushes`
    are those since its start, `recent_flushes` those since an earlier page. The disks of
    `stalled_dirs` do not answer."""

    node_id: int
    clock_ahead_ms: int | None = None
    flushes: Flushes | None = None
    recent_flushes: Flushes | None = None
    stalled_dirs: tuple[str, ...] = ()

    def after(self, earlier: NodePage) -> NodePage:
        """Return this page with the flushes since an earlier one of the same node."""
        now, before = self.flushes or Flushes(0, 0), earlier.flushes or Flushes(0, 0)
        recent = Flushes(now.count - before.count, now.slow - before.slow)
        # A node that has restarted counts from the start.
        return replace(self, recent_flushes=recent if 0 <= recent.slow <= recent.count else None)


def local_addresses(directory: Path) -> dict[str, str | None]:
    """Return where the nodes of a directory of `penstock up` serve their metrics, and their
    tokens."""
    files = sorted(directory.glob(f"*/{layout.PROPERTIES}"))
    found = ((layout.metrics_address(file), layout.metrics_token(file)) for file in files)
    return {address: token for address, token in found if address is not None}


async def read_page(
    world: World,
    address: str,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> NodePage:
    """Return what the page at host:port says, or at https://host:port, which needs `tls`; a node
    with penstock.metrics.token asks for the token. Raises NoPage."""
    try:
        scheme, _mark, rest = address.rpartition("://")
        ((host, port),) = parse_bootstrap(rest)
        is_tls = scheme.lower() == "https"
        if is_tls and tls is None:
            raise ValueError(
                "it has TLS: give --command-config with ssl.truststore.location, or --dir"
            )
        asked_ms = world.clock.now_ms()
        async with asyncio.timeout(_PAGE_S):
            text = await _get(host, port, token, tls if is_tls else None)
        return parse_page(text, asked_ms, world.clock.now_ms())
    except TimeoutError:
        raise NoPage(f"{address} did not answer within {_PAGE_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is refused: {error.verify_message}"
        raise NoPage(f"{address}: {why}") from error
    except OSError as error:
        raise NoPage(f"{address}: {reason(error)}") from error
    except ValueError as error:
        raise NoPage(f"{address}: {error}") from error


def parse_page(text: str, asked_ms: int, answered_ms: int) -> NodePage:
    """Return what a page says. The node looked at its clock between two times of this machine.
    ValueError if it is no page of a node."""
    node_id: int | None = None
    clock_ms: int | None = None
    flushes = slow = 0
    stalled: list[str] = []
    for name, labels, value in _SAMPLE.findall(text):
        if name == "penstock_node_info":
            found = _NODE_ID.search(labels)
            node_id = None if found is None else int(found[1])
        elif name == "penstock_clock_seconds":
            clock_ms = round(float(value) * 1000)
        elif name == "penstock_log_flush_seconds_count":
            flushes = int(float(value))
        elif name == "penstock_log_flush_seconds_bucket" and labels == f'le="{SLOW_FLUSH_S}"':
            slow = int(float(value))
        elif name == "penstock_log_directory_stalled" and float(value):
            stalled += [_unescaped(text) for text in _DIRECTORY.findall(labels)]
    if node_id is None:
        raise ValueError("this is not the page of metrics of a Penstock node")
    ahead_ms = None
    if clock_ms is not None:
        ahead_ms = max(clock_ms - answered_ms, 0) or min(clock_ms - asked_ms, 0)
    return NodePage(
        node_id,
        ahead_ms,
        Flushes(flushes, flushes - slow) if flushes else None,
        stalled_dirs=tuple(stalled),
    )


def _unescaped(text: str) -> str:
    """Return the value of a label."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


async def _get(host: str, port: int, token: str | None, tls: ssl.SSLContext | None) -> str:
    if token is not None and not _TOKEN.fullmatch(token):
        raise ValueError("the token has characters that an HTTP header cannot have")
    authorization = "" if token is None else f"Authorization: Bearer {token}\r\n"
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        request = f"GET /metrics?partitions=0 HTTP/1.0\r\nHost: {host}\r\n{authorization}\r\n"
        writer.write(request.encode())
        data = bytearray()
        while chunk := await reader.read(65_536):
            data += chunk
            if len(data) > MAX_PAGE_BYTES:
                raise ValueError(f"its page has more than {MAX_PAGE_BYTES:,} bytes")
    finally:
        writer.transport.abort()
    head, _empty, body = bytes(data).partition(b"\r\n\r\n")
    status = head.split(b" ")[1:2]
    if status == [b"401"]:
        why = "it asks for a token (penstock.metrics.token): give it with --metrics-token"
        raise ValueError(why if token is None else "it refuses the token: its own is another one")
    if status != [b"200"]:
        raise ValueError("it does not answer with a page of metrics")
    return body.decode(errors="replace")
