"""The metrics listener with TLS: who gets the page, and what peers without a handshake cost."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.config.node import read_node_config
from penstock.config.quorum import Address
from penstock.errors import KafkaError
from penstock.limits import MAX_SCRAPE_CONNECTIONS
from penstock.metrics.samples import Samples
from penstock.metrics.turn import Turn
from penstock.security.setup.authority import Authority
from penstock.security.tls.node import NodeTls
from penstock.server.metrics.listener import MetricsListener
from penstock.world import World
from penstock.world.real import run


async def nothing(_samples: Samples, _turn: Turn) -> None:
    """Add no sample."""


def play(directory: Path, scenario: Callable[[MetricsListener], Awaitable[None]]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("CA", now)
    (directory / "ca.pem").write_bytes(authority.certificate_pem)
    (directory / "node.pem").write_bytes(authority.issue("node", ["127.0.0.1"], now))
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
        "penstock.metrics.listener": "https://127.0.0.1:0",
        "penstock.metrics.token": "t0ken",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.location": str(directory / "node.pem"),
    }
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    config = read_node_config(text.encode(), "server.properties")

    async def main(world: World) -> None:
        contexts = NodeTls(world, config).metrics
        assert contexts is not None
        listener = MetricsListener(
            world, config, Address("127.0.0.1", 0), (nothing,), tls=contexts.context
        )
        await listener.start()
        try:
            async with asyncio.timeout(60):
                await scenario(listener)
        finally:
            listener.stop()

    run(main)


async def scrape(listener: MetricsListener, directory: Path, token: str) -> bytes:
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    try:
        writer.write(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return await reader.read()
    finally:
        writer.transport.abort()


def test_a_scrape_needs_tls_and_the_token(tmp_path: Path) -> None:
    async def scenario(listener: MetricsListener) -> None:
        assert (await scrape(listener, tmp_path, "t0ken")).startswith(b"HTTP/1.1 200 ")
        assert (await scrape(listener, tmp_path, "other")).startswith(b"HTTP/1.1 401 ")
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer t0ken\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.transport.abort()

    play(tmp_path, scenario)


def test_peers_that_do_not_shake_hands_keep_no_scrape_out(tmp_path: Path) -> None:
    async def scenario(listener: MetricsListener) -> None:
        with ExitStack() as stack:
            for _ in range(3 * MAX_SCRAPE_CONNECTIONS):
                silent = stack.enter_context(socket.socket())
                silent.setblocking(False)
                await asyncio.get_running_loop().sock_connect(silent, ("127.0.0.1", listener.port))
            assert (await scrape(listener, tmp_path, "t0ken")).startswith(b"HTTP/1.1 200 ")

    play(tmp_path, scenario)


def test_https_without_a_key_store_is_refused(tmp_path: Path) -> None:
    text = (
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:0\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}\n"
        "penstock.metrics.listener=https://127.0.0.1:0\n"
    )
    config = read_node_config(text.encode(), "server.properties")

    async def main(world: World) -> None:
        with pytest.raises(KafkaError, match=r"metrics: ssl\.keystore\.location"):
            NodeTls(world, config)

    run(main)
