"""Handshakes: what is refused and logged, and peers by the thousand that never complete theirs."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import shutil
import socket
import ssl
import struct
import time
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives import serialization

from penstock import limits
from penstock.handlers.context import ConnectionHandle
from penstock.security.tls.network import TlsNetwork
from penstock.server.quotas import ConnectionLimits
from penstock.server.state import Bounds
from penstock.server.tls import handshakes
from penstock.server.tls.opening import TlsOpening
from penstock.world import World
from tests.server.serving import heartbeat, respond_now
from tests.server.test_server_order import until
from tests.tls.certificates import DAY, Authority
from tests.tls.test_tls_client_hello import P_256, X25519, client_hello
from tests.tls.tls_serving import (
    TlsClient,
    context_of,
    load,
    play,
    refused,
    serving_tls,
)

REQUIRED = {"ssl.client.auth": "required"}


@pytest.mark.parametrize(
    ("more", "user", "alert", "ours"),
    [
        (REQUIRED, None, "certificate required", "the peer presented no certificate"),
        (
            REQUIRED,
            {"user": "Duke", "end": -DAY, "start": -2 * DAY},
            "certificate expired",
            "the peer's certificate is refused: certificate has expired",
        ),
        (
            REQUIRED | {"ssl.principal.mapping.rules": "RULE:CN=Mallory.*/m/"},
            {"user": "Duke"},
            "closed",
            "no rule of ssl.principal.mapping.rules applies to CN=Duke",
        ),
    ],
)
def test_client_certificate_that_cannot_be_used_is_refused_and_logged(
    loop: str,
    authority: Authority,
    settings: dict[str, str],
    more: dict[str, str],
    user: dict[str, Any] | None,
    alert: str,
    ours: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> tuple[str, int, int]:
        async with serving_tls(world, respond_now, settings | more) as served:
            # An expired certificate of one's own is refused when it is loaded.
            context = context_of(authority)
            if user is not None:
                signed = authority.sign(
                    **{"common_name" if k == "user" else k: v for k, v in user.items()}
                )
                load(context, signed.chain_pem + signed.key_pem())
            found = await refused(served, context)
            await until(lambda: served.server.handshakes.counters.failed)
            counters = served.server.handshakes.counters
            return found, counters.failed, served.server.state.quotas.by_listener.get("SSL", 0)

    found, failed, left = play(loop, scenario)
    assert alert in found
    assert (failed, left) == (1, 0)
    assert ours in caplog.text


def test_old_versions_of_tls_are_refused(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        trusting.minimum_version = ssl.TLSVersion.TLSv1
        trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    trusting.set_ciphers("ALL:@SECLEVEL=0")

    async def scenario(world: World) -> str:
        async with serving_tls(world, respond_now, settings) as served:
            return await refused(served, trusting)

    assert "protocol version" in play(loop, scenario)
    assert "versions of TLS that are not enabled" in caplog.text


@pytest.mark.parametrize(
    "data", [b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100]
)
def test_plaintext_is_refused_at_its_first_byte_and_explained(
    loop: str, settings: dict[str, str], data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> bytes:
        async with serving_tls(world, respond_now, settings) as served:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("localhost", served.port)
                writer.write(data)
                try:
                    found = await reader.read()
                except ConnectionResetError:
                    found = b""
                writer.close()
            return found

    assert play(loop, scenario) == b""
    lines = [record for record in caplog.records if "not TLS" in record.getMessage()]
    assert len(lines) == 1, "logged once per address and reason"


def test_peer_that_is_silent_or_slow_is_closed_in_time(
    loop: str,
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.3)

    async def scenario(world: World) -> tuple[int, int, int]:
        async with serving_tls(world, respond_now, settings) as served:
            for data in (b"", b"\x16\x03\x01"):
                reader, writer = await asyncio.open_connection("localhost", served.port)
                writer.write(data)
                with contextlib.suppress(ConnectionResetError):  # the server has not read the bytes
                    async with asyncio.timeout(5):
                        assert await reader.read() == b""
                writer.close()
            await until(lambda: served.server.handshakes.counts == (0, 0, 0))
            assert not served.server.state.quotas.by_listener
            return served.server.handshakes.counts

    play(loop, scenario)
    assert "the peer sent nothing" in caplog.text
    assert "took longer" in caplog.text


def hello() -> bytes:
    """Return a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    return outgoing.read()


HELLO = hello()


@pytest.mark.parametrize("first", [b"", HELLO], ids=["silent", "hello"])
def test_thousands_of_handshakes_that_never_end_delay_nobody(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext, first: bytes
) -> None:
    """All of them come from the address of the client that they would delay."""

    async def scenario(world: World) -> tuple[float, float, tuple[int, int, int]]:
        async with serving_tls(world, respond_now, settings) as served:
            early = await served.connect(trusting)
            sockets = []
            for _ in range(1_000):
                half = socket.create_connection(("localhost", served.port))
                half.setblocking(False)
                half.send(first) if first else None
                sockets.append(half)
                await asyncio.sleep(0)
            # On a busy machine the first of them have given way already.
            full = limits.MAX_HANDSHAKES_PER_ADDRESS
            await until(lambda: sum(served.server.handshakes.counts) >= full)
            running = served.server.handshakes.counts
            started = time.monotonic()
            early.send(heartbeat(1))
            await early.wait_responses(1)
            answered = time.monotonic() - started
            late = await served.connect(trusting)
            late.send(heartbeat(1))
            await late.wait_responses(1)
            opened = time.monotonic() - started
            for half in sockets:
                half.close()
            return answered, opened, running

    answered, opened, counts = play(loop, scenario)
    # If each kept its place until HANDSHAKE_TIMEOUT_S, the last would wait for 78 s.
    assert answered < 5.0
    assert opened < 30.0
    assert counts[2] <= limits.MAX_HANDSHAKES_PER_ADDRESS


def test_handshakes_begin_when_the_first_message_is_complete(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """Otherwise all of them would do the most of their work in the same turn of the event loop."""

    async def scenario(world: World) -> None:
        async with (
            serving_tls(world, respond_now, settings) as served,
            contextlib.AsyncExitStack() as open_,
        ):
            accepted = served.server.handshakes
            connected = [
                open_.enter_context(socket.create_connection(("localhost", served.port)))
                for _ in range(5)
            ]
            for number, half in enumerate(connected):
                half.sendall(HELLO[: 1 + 50 * number])
            await until(lambda: accepted.counts == (5, 0, 0))
            client = await served.connect(trusting)
            client.send(heartbeat(1))
            assert await client.wait_responses(1) == [1]
            assert accepted.counts == (5, 0, 0)
            connected[0].sendall(HELLO[1:-1])
            connected[1].sendall(HELLO[51:])
            await until(lambda: accepted.counts == (4, 0, 1))
            connected[0].sendall(HELLO[-1:])
            await until(lambda: accepted.counts == (3, 0, 2))
            for half in connected[2:]:  # the server learns that nothing follows
                half.shutdown(socket.SHUT_WR)
            await until(lambda: accepted.counts == (0, 0, 2))

    play(loop, scenario)


def test_a_reset_connection_with_a_part_of_its_first_message_is_freed_at_once(
    loop: str, settings: dict[str, str]
) -> None:
    async def scenario(world: World) -> None:
        async with serving_tls(world, respond_now, settings) as served:
            accepted = served.server.handshakes
            for _ in range(5):
                half = socket.create_connection(("localhost", served.port))
                half.sendall(HELLO[:20])
                half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                half.close()
            late = socket.create_connection(("localhost", served.port))
            await until(lambda: accepted.counts == (1, 0, 0))
            late.sendall(HELLO[:20])
            await asyncio.sleep(0.01)
            late.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            late.close()
            await until(lambda: accepted.counts == (0, 0, 0))

    play(loop, scenario)


def test_few_clients_are_asked_for_another_key_at_once(
    loop: str,
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES_AWAITING_KEYS", 2)
    keyless, usual = client_hello([X25519], []), client_hello([X25519], [P_256])

    async def scenario(world: World) -> None:
        async with (
            serving_tls(world, respond_now, settings) as served,
            contextlib.AsyncExitStack() as open_,
        ):
            accepted = served.server.handshakes
            for hello in (keyless, keyless, usual, keyless, usual):
                half = socket.create_connection(("localhost", served.port))
                open_.enter_context(half)
                half.sendall(hello)
            await until(lambda: accepted.counters.failed)
            await until(lambda: accepted.counts == (0, 0, 2))

    play(loop, scenario)
    assert "sends no key of a group of this node" in caplog.text


def test_few_addresses_cannot_take_all_places(
    loop: str,
    settings: dict[str, str],
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Silent peers of two addresses hold all places, and many more wait. A third address waits
    until the first of them gives way."""
    for name, value in (("MAX_HANDSHAKES", 4), ("MAX_HANDSHAKES_PER_ADDRESS", 2)):
        monkeypatch.setattr(handshakes, name, value)
    monkeypatch.setattr(handshakes, "HANDSHAKE_PATIENCE_S", 1.0)

    async def scenario(world: World) -> float:
        async with serving_tls(world, respond_now, settings) as served:
            sockets = []
            for number in range(100):
                source = f"127.0.0.{2 + number % 2}", 0
                half = socket.create_connection(("localhost", served.port), None, source)
                half.sendall(HELLO)
                sockets.append(half)
            await until(lambda: served.server.handshakes.counts[1:] >= (50, 4))
            started = time.monotonic()
            client = await served.connect(trusting)
            client.send(heartbeat(1))
            await client.wait_responses(1)
            opened = time.monotonic() - started
            for half in sockets:
                half.close()
            return opened

    # In the order of their arrival it would be 24 s.
    assert play(loop, scenario) < 10.0
    assert "did not answer in its handshake, and others wait" in caplog.text


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_addresses_of_one_network_share_their_places(address: str, origin: str) -> None:
    assert handshakes._origin(address) == origin


def test_handshakes_count_for_the_limits_on_connections(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    bounds = Bounds(connections=ConnectionLimits(per_address=2))

    async def scenario(world: World) -> list[str]:
        async with serving_tls(world, respond_now, settings, bounds) as served:
            half = [socket.create_connection(("localhost", served.port)) for _ in range(2)]
            await until(lambda: served.server.handshakes.counts == (2, 0, 0))
            full = await refused(served, trusting)
            for end in half:
                end.close()
            await until(lambda: served.server.handshakes.counts == (0, 0, 0))
            client = await served.connect(trusting)
            client.send(heartbeat(1))
            await client.wait_responses(1)
            return [full, await refused(served, trusting), await refused(served, trusting)]

    full, one_left, two_open = play(loop, scenario)
    assert "closed" in full
    assert one_left == ""
    assert "closed" in two_open


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_renegotiation_is_refused(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    async def scenario(world: World) -> tuple[str, int]:
        async with serving_tls(world, respond_now, settings) as served:
            process = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-tls1_2", "-connect", f"localhost:{served.port}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert process.stdin is not None
            await until(lambda: served.server.state.connections)
            process.stdin.write(b"R\n")
            async with asyncio.timeout(10):
                output, _ = await process.communicate()
            other = await served.connect(trusting)
            other.send(heartbeat(1))
            await other.wait_responses(1)
            return output.decode(errors="replace"), served.server.handshakes.counters.completed

    output, completed = play(loop, scenario)
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output
    assert completed == 2


def test_controllers_have_places_of_their_own(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 1)
    monkeypatch.setattr(handshakes, "HANDSHAKE_PATIENCE_S", 30.0)
    more = {"listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL"}

    async def scenario(world: World) -> list[int]:
        async with serving_tls(world, respond_now, settings | more) as served:
            with socket.create_connection(("localhost", served.port)) as half:
                half.sendall(HELLO)
                await until(lambda: served.server.handshakes.counts == (0, 0, 1))
                network = TlsNetwork(world.network, lambda: trusting)
                port = served.server.ports["CONTROLLER"]
                async with asyncio.timeout(5):
                    _transport, protocol = await network.connect(TlsClient, "localhost", port)
                client = cast(TlsClient, protocol)
                client.send(heartbeat(1))
                return await client.wait_responses(1)

    assert play(loop, scenario) == [1]


@pytest.mark.parametrize(("end", "is_open"), [(DAY, True), (-DAY / 2, False)])
def test_expired_certificate_does_not_resume_a_session(
    authority: Authority, end: datetime.timedelta, is_open: bool
) -> None:
    """OpenSSL resumes a session of TLS 1.2 without a look at the certificate."""
    signed = authority.sign("client", end=end).certificate
    connected = SimpleNamespace(
        session_reused=True,
        getpeercert=lambda **_options: signed.public_bytes(serialization.Encoding.DER),
    )
    transport: Any = SimpleNamespace(
        set_read_buffer_limits=lambda *_limits: None, get_extra_info=lambda _name: connected
    )
    refusals: list[str] = []
    arrival: Any = SimpleNamespace(complete=lambda: None, refuse=refusals.append)
    config: Any = SimpleNamespace(authenticates=False)
    assert TlsOpening(arrival, config).opened(transport, ConnectionHandle(), print) is is_open
    assert refusals == ([] if is_open else ["the certificate of a resumed session has expired"])
