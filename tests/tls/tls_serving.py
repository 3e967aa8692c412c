"""A server with one TLS listener, and clients of it, on uvloop and on asyncio's own loop."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import uvloop

from penstock.config.node import NodeConfig, read_node_config
from penstock.config.ssl_settings import client_ssl_config
from penstock.security.tls.context import client_context
from penstock.security.tls.network import with_tls
from penstock.security.tls.node import NodeTls
from penstock.server.dispatch import Dispatch, Handler
from penstock.server.server import Server
from penstock.server.state import Bounds
from penstock.world import World
from penstock.world.real import real_world
from tests.server.serving import HEARTBEAT, SERVED, Client, heartbeat
from tests.tls.certificates import Authority

T = TypeVar("T")

LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def play(loop: str, scenario: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario on one of LOOPS."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(scenario(real_world()))


def properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def tls_config(settings: Mapping[str, str]) -> NodeConfig:
    text = (
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=SSL://localhost:0,CONTROLLER://localhost:0\nsecurity.inter.broker.protocol=SSL\n"
    )
    return read_node_config((text + properties(settings)).encode(), "server.properties")


class TlsClient(Client):
    """Remembers why its connection ended."""

    error: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        super().connection_lost(exc)


@dataclass(frozen=True, slots=True)
class ServedTls:
    world: World
    server: Server
    tls: NodeTls

    @property
    def port(self) -> int:
        return self.server.ports["SSL"]

    async def connect(self, context: ssl.SSLContext, host: str = "localhost") -> TlsClient:
        network = with_tls(self.world, lambda: context).network
        _transport, protocol = await network.connect(TlsClient, host, self.port)
        return cast(TlsClient, protocol)


@asynccontextmanager
async def serving_tls(
    world: World,
    handler: Handler | Mapping[int, Handler],
    settings: Mapping[str, str],
    bounds: Bounds | None = None,
) -> AsyncIterator[ServedTls]:
    handlers: Mapping[int, Handler] = (
        handler if isinstance(handler, Mapping) else {HEARTBEAT: handler}
    )
    dispatch = Dispatch(None, {key: SERVED[key] for key in handlers}, handlers.__getitem__)
    config = tls_config(settings)
    tls = NodeTls(world, config)
    server = Server(world, config, dispatch, bounds, tls=tls.listeners)
    await server.start()
    await server.accept_clients()
    try:
        yield ServedTls(world, server, tls)
    finally:
        await server.stop(within_s=1)


def context_of(authority: Authority, user: str | None = None, **others: Any) -> ssl.SSLContext:
    names: dict[str, str] = {}
    if user is not None:
        signed = authority.sign(user, **others)
        names = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": signed.key_pem(),
            "ssl.keystore.certificate.chain": signed.chain_pem,
        }
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    return client_context(client_ssl_config(trust | names)).context


async def refused(served: ServedTls, context: ssl.SSLContext, host: str = "localhost") -> str:
    """Connect and send a request. Return why this fails. In TLS 1.3 a client learns only after its
    handshake that the server refuses its certificate."""
    try:
        client = await served.connect(context, host)
    except OSError as error:
        return str(error)
    client.send(heartbeat(1))
    await client.wait_responses(1)
    return "" if client.responses else f"closed {client.error}"


def load(context: ssl.SSLContext, pem: str) -> None:
    descriptor = os.memfd_create("test")
    os.write(descriptor, pem.encode())
    context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
