"""Records of TLS that have no data for the application, or little: KeyUpdate, bytes one by one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ctypes.util
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from penstock.config.listeners import SecurityProtocol
from penstock.config.ssl_settings import listener_ssl_config
from penstock.limits import MAX_TLS_RECORDS_AFTER_CLOSE
from penstock.security.tls import records
from penstock.security.tls.context import server_context
from penstock.server.connection import Connection
from penstock.world import World
from tests.server.serving import heartbeat, respond_now
from tests.tls.tls_serving import play, serving_tls, tls_config

UPDATE_REQUESTED = 1


class OpenSsl:
    """A client by OpenSSL's own library: Python's ssl cannot send KeyUpdate."""

    def __init__(self, library: Any, port: int) -> None:
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        pointer = ctypes.c_void_p
        self._library = library
        self._method = pointer(library.TLS_client_method())
        self._context = pointer(library.SSL_CTX_new(self._method))
        self._ssl = pointer(library.SSL_new(self._context))
        self.socket = socket.create_connection(("localhost", port), timeout=10)
        self.socket.setblocking(True)
        library.SSL_set_fd(self._ssl, self.socket.fileno())
        assert library.SSL_connect(self._ssl) == 1

    def updates(self, count: int) -> bytes:
        """Return the records of so many updates."""
        ours, theirs = socket.socketpair()
        made = bytearray()
        with ours, theirs:
            self._library.SSL_set_fd(self._ssl, ours.fileno())
            for _ in range(count):
                assert self._library.SSL_key_update(self._ssl, UPDATE_REQUESTED) == 1
                assert self._library.SSL_do_handshake(self._ssl) == 1
                made += theirs.recv(1_000)
            self._library.SSL_set_fd(self._ssl, self.socket.fileno())
        return bytes(made)

    def send(self, data: bytes) -> None:
        assert self._library.SSL_write(self._ssl, data, len(data)) == len(data)

    def receive(self) -> bytes:
        buffer = ctypes.create_string_buffer(1_000)
        count = self._library.SSL_read(self._ssl, buffer, len(buffer))
        return buffer.raw[: max(0, count)]

    def close(self) -> None:
        self._library.SSL_free(self._ssl)
        self._library.SSL_CTX_free(self._context)
        self.socket.close()


@pytest.fixture
def library() -> Any:
    name = ctypes.util.find_library("ssl")
    if name is None:
        pytest.skip("there is no libssl")
    return ctypes.CDLL(name)


def with_client(
    loop: str, settings: dict[str, str], library: Any, use: Callable[[OpenSsl], bytes]
) -> bytes:
    """Return what a client makes of its connection to a server."""

    async def scenario(world: World) -> bytes:
        async with serving_tls(world, respond_now, settings) as served:
            client = await asyncio.to_thread(OpenSsl, library, served.port)
            found = await asyncio.to_thread(use, client)
            client.close()
            return found

    return play(loop, scenario)


def test_a_peer_that_floods_with_key_updates_is_disconnected(
    loop: str, settings: dict[str, str], library: Any
) -> None:
    def use(client: OpenSsl) -> bytes:
        try:
            client.socket.sendall(client.updates(2_000))
            client.socket.settimeout(10)
            while client.socket.recv(10_000):
                pass
        except ConnectionError:
            pass
        return b"disconnected"

    assert with_client(loop, settings, library, use) == b"disconnected"


def test_some_key_updates_are_served(loop: str, settings: dict[str, str], library: Any) -> None:
    def use(client: OpenSsl) -> bytes:
        client.socket.sendall(client.updates(20))
        client.send(heartbeat(7))
        return client.receive()

    assert with_client(loop, settings, library, use)[4:8] == (7).to_bytes(4)


def test_records_of_a_byte_are_read_in_turns(
    loop: str,
    settings: dict[str, str],
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = 0
    end_turn = Connection._end_tls_turn

    def counted(connection: Connection) -> None:
        nonlocal turns
        turns += 1
        end_turn(connection)

    monkeypatch.setattr(records, "TLS_RECORDS_A_TURN", 50)
    monkeypatch.setattr(Connection, "_end_tls_turn", counted)
    count = 40

    async def scenario(world: World) -> list[int]:
        async with serving_tls(world, respond_now, settings) as served:
            client = await served.connect(trusting)
            requests = b"".join(map(heartbeat, range(count)))
            for position in range(len(requests)):
                client.send(requests[position : position + 1])
            return await client.wait_responses(count)

    assert play(loop, scenario) == list(range(count))
    assert turns >= count * len(heartbeat(0)) // 50 // 2


def test_a_closed_connection_drops_a_bounded_number_of_records(
    settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """A peer that breaks the protocol could send records of a byte until the connection is
    aborted, and a read of all of them blocked the event loop for 0.3 s."""
    context = server_context(listener_ssl_config(tls_config(settings), "SSL", SecurityProtocol.SSL))
    arrived, sent, received, answered = (ssl.MemoryBIO() for _ in range(4))
    client = trusting.wrap_bio(received, sent, server_hostname="localhost")
    server: Any = context.context.wrap_bio(arrived, answered, server_side=True)
    for end, source, target in ((client, sent, arrived), (server, answered, received)) * 2:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
        target.write(source.read())

    def send(count: int) -> None:
        for _ in range(count):
            client.write(b"x")
        arrived.write(sent.read())

    send(MAX_TLS_RECORDS_AFTER_CLOSE + 10)
    assert {server.read() for _ in range(MAX_TLS_RECORDS_AFTER_CLOSE + 10)} == {b"x"}
    with pytest.raises(ssl.SSLWantReadError):
        server.unwrap()
    send(MAX_TLS_RECORDS_AFTER_CLOSE + 1)
    assert {server.read() for _ in range(MAX_TLS_RECORDS_AFTER_CLOSE)} == {b"x"}
    with pytest.raises(ssl.SSLError, match="no use"):
        server.read()
