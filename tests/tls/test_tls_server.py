"""TLS listeners in this process: requests, principals, back-pressure, and refused servers."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from typing import Any

import pytest

from penstock import limits
from penstock.handlers.context import RequestContext
from penstock.limits import TLS_BYTES_A_TURN, WRITE_BUFFER_BYTES
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.security.tls.network import TlsNetwork, TlsRefused
from penstock.server.state import Bounds
from penstock.world import World
from tests.server.serving import FETCH, HEARTBEAT, heartbeat, respond_now, serving
from tests.server.test_server_backpressure import (
    MEGABYTE,
    FakeFile,
    FakeRange,
    WholeRange,
    fetch,
    fetch_handler,
)
from tests.server.test_server_order import until
from tests.tls.certificates import DAY, Authority
from tests.tls.tls_serving import (
    context_of,
    load,
    play,
    refused,
    serving_tls,
)


def test_requests_are_served_in_order_and_large_responses_whole(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    file = FakeFile(20 * MEGABYTE)
    ranges = (FakeRange(file, 1_000, 3 * MEGABYTE + 17), WholeRange(b"w" * MEGABYTE))

    async def scenario(world: World) -> list[tuple[int, bytes]]:
        handlers = {FETCH: fetch_handler(*ranges), HEARTBEAT: respond_now}
        async with serving_tls(world, handlers, settings) as served:
            client = await served.connect(trusting)
            client.send(heartbeat(0), fetch(1), heartbeat(2), fetch(3))
            await client.wait_responses(4)
            return client.responses

    responses = play(loop, scenario)
    assert [correlation for correlation, _ in responses] == [0, 1, 2, 3]
    assert responses[1][1] == responses[3][1]
    assert file.pread(3 * MEGABYTE + 17, 1_000) in responses[1][1]
    assert max(file.reads[:-1]) == TLS_BYTES_A_TURN


def test_slow_reader_holds_back_its_own_connection_only(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    file = FakeFile(64 * MEGABYTE)
    handlers = {FETCH: fetch_handler(FakeRange(file, 0, 64 * MEGABYTE)), HEARTBEAT: respond_now}

    async def scenario(world: World) -> int:
        async with serving_tls(world, handlers, settings) as served:
            deaf = await served.connect(trusting)
            deaf.transport.pause_reading()
            deaf.send(fetch(1), *(heartbeat(number) for number in range(2, 500)))
            other = await served.connect(trusting)
            before = -1
            while before != sum(file.reads):
                before = sum(file.reads)
                await asyncio.sleep(0.1)
            other.send(heartbeat(1))
            assert await other.wait_responses(1) == [1]
            held = served.server.state.memory.used
            deaf.transport.resume_reading()
            await deaf.wait_responses(499)
            assert len(deaf.responses[0][1]) > 64 * MEGABYTE
            return held

    held = play(loop, scenario)
    # What the kernel and both transports take, not the whole response.
    assert held < WRITE_BUFFER_BYTES + 2 * TLS_BYTES_A_TURN + MEGABYTE


def test_memory_of_requests_that_are_not_read_is_bounded_and_counted(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    gate = asyncio.Event()

    async def wait() -> HeartbeatResponse:
        await gate.wait()
        return HeartbeatResponse()

    async def scenario(world: World) -> tuple[int, int]:
        bounds = Bounds(max_inflight_requests=1)
        async with serving_tls(world, lambda *_: wait(), settings, bounds) as served:
            client = await served.connect(trusting)
            client.send(*(heartbeat(number, "m" * 1_000) for number in range(4_000)))
            await until(lambda: served.server.state.connections)
            (connection,) = served.server.state.connections
            transport: Any = connection._transport
            await until(lambda: transport.get_read_buffer_size())
            before = -1
            while before != (now := transport.get_read_buffer_size()):
                before = now
                await asyncio.sleep(0.1)
            connection.trim()
            held = connection.memory_held
            gate.set()
            await client.wait_responses(4_000)
            assert client.order == list(range(4_000))
            return now, held

    unread, held = play(loop, scenario)
    assert 0 < unread <= held
    # One piece that the transport reads is 256 KB.
    assert unread <= limits.TLS_READ_AHEAD_BYTES + 256 * 1024


def test_memory_of_a_part_of_a_request_counts_the_buffer_of_the_transport(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    size = 20_000

    async def scenario(world: World) -> tuple[int, int]:
        async with serving_tls(world, respond_now, settings) as served:
            client = await served.connect(trusting)
            frame = heartbeat(1, "m" * 30_000)
            client.send(frame[:size])
            await until(lambda: served.server.state.connections)
            (connection,) = served.server.state.connections
            await until(lambda: connection._buffer.held >= size)
            own, held = connection._buffer.own_bytes, connection.memory_held
            client.send(frame[size:])
            assert await client.wait_responses(1) == [1]
            await until(lambda: connection.memory_held == 0)
            return own, held

    own, held = play(loop, scenario)
    assert own >= size
    assert held == 2 * own


def test_other_connections_have_their_turn_while_a_response_is_encrypted(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """A callback encrypts no more than TLS_BYTES_A_TURN, also of a response that is in memory. In
    one iteration of the loop there may be two, the second because the socket took the first."""
    written: list[list[int]] = [[]]

    async def scenario(world: World) -> None:
        handlers = {FETCH: fetch_handler(WholeRange(bytes(8 * MEGABYTE))), HEARTBEAT: respond_now}
        async with serving_tls(world, handlers, settings) as served:
            client = await served.connect(trusting)
            await until(lambda: served.server.state.connections)
            (connection,) = served.server.state.connections
            writer = connection._writer
            transport = writer._transport

            class Spy:
                def write(self, data: bytes) -> None:
                    written[-1].append(len(data))
                    transport.write(data)

                def __getattr__(self, name: str) -> Any:
                    return getattr(transport, name)

            writer._transport = Spy()  # type: ignore[assignment]
            client.send(fetch(1))

            def tick() -> None:
                written.append([])
                if not client.responses:
                    asyncio.get_running_loop().call_soon(tick)

            tick()
            await client.wait_responses(1)

    play(loop, scenario)
    assert sum(map(sum, written)) > 8 * MEGABYTE
    assert max(map(sum, written)) <= 2 * TLS_BYTES_A_TURN


class Principals:
    """A handler that records whose requests it gets."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(
        self, _node: Any, _request: HeartbeatRequest, context: RequestContext
    ) -> HeartbeatResponse:
        self.seen.append(str(context.principal))
        return HeartbeatResponse()


@pytest.mark.parametrize(
    ("more", "user", "principal"),
    [
        ({}, None, "User:ANONYMOUS"),
        ({}, "Duke", "User:ANONYMOUS"),
        ({"ssl.client.auth": "requested"}, None, "User:ANONYMOUS"),
        ({"ssl.client.auth": "requested"}, "Duke", "User:CN=Duke,OU=ServiceUsers,O=Org,C=US"),
        (
            {
                "ssl.client.auth": "required",
                "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
            },
            "Duke",
            "User:duke",
        ),
    ],
)
def test_principal_is_that_of_the_client_certificate(
    loop: str,
    authority: Authority,
    settings: dict[str, str],
    more: dict[str, str],
    user: str | None,
    principal: str,
) -> None:
    handler = Principals()

    async def scenario(world: World) -> None:
        async with serving_tls(world, handler.handle, settings | more) as served:
            client = await served.connect(context_of(authority, user))
            client.send(heartbeat(1))
            await client.wait_responses(1)

    play(loop, scenario)
    assert handler.seen == [principal]


def test_our_client_refuses_servers_that_it_cannot_trust(
    loop: str, settings: dict[str, str], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> list[str]:
        async with serving_tls(world, respond_now, settings) as served:
            found = [
                await refused(served, trusting),
                await refused(served, trusting, "127.0.0.1"),
                await refused(served, context_of(Authority("Other"))),
            ]
            await until(lambda: served.server.handshakes.counters.failed == 2)
            return found

    trusted, other_name, other_authority = play(loop, scenario)
    assert trusted == ""
    assert "IP address mismatch" in other_name
    assert "self-signed certificate" in other_authority or "unable to get" in other_authority
    for alert in ("unknown ca", "bad certificate"):
        assert f"{alert}): its trust store must have the issuer" in caplog.text


def test_tls_client_of_a_plaintext_listener_is_told_by_both_sides(
    loop: str, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> str:
        async with serving(world, respond_now) as served:
            network = TlsNetwork(world.network, lambda: trusting)
            with pytest.raises(ConnectionResetError) as error:
                await network.connect(
                    asyncio.Protocol, "localhost", served.server.ports["PLAINTEXT"]
                )
            return str(error.value)

    assert "Is its listener PLAINTEXT" in play(loop, scenario)
    assert "the peer appears to speak TLS" in caplog.text


def test_tls_client_of_a_plaintext_peer_says_so(loop: str, trusting: ssl.SSLContext) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\4\0\0\0\1" * 10)
        await writer.drain()

    async def scenario(world: World) -> str:
        server = await asyncio.start_server(answer, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        network = TlsNetwork(world.network, lambda: trusting)
        with pytest.raises(TlsRefused) as error:
            await network.connect(asyncio.Protocol, "localhost", port)
        server.close()
        return str(error.value)

    assert "its listener is PLAINTEXT" in play(loop, scenario)


def test_client_refuses_an_expired_certificate(
    loop: str, authority: Authority, trusting: ssl.SSLContext
) -> None:
    expired = authority.sign("node", ["localhost"], start=-3 * DAY, end=-DAY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, expired.key_pem() + expired.chain_pem)

    async def scenario(world: World) -> str:
        server = await asyncio.start_server(lambda *_: None, "localhost", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TlsRefused) as error:
            network = TlsNetwork(world.network, lambda: trusting)
            await network.connect(asyncio.Protocol, "localhost", port)
        server.close()
        return str(error.value)

    assert "certificate has expired" in play(loop, scenario)


def test_lost_connection_is_freed_at_once(
    settings: dict[str, str], trusting: ssl.SSLContext
) -> None:
    """Without a garbage collection, which is rare: strangers could take memory until then. Nodes
    run on uvloop; asyncio's own loop keeps a part until the timer of the handshake."""

    async def scenario(world: World) -> None:
        async with serving_tls(world, respond_now, settings) as served:
            client = await served.connect(trusting)
            client.send(heartbeat(1))
            await client.wait_responses(1)
            (connection,) = map(weakref.ref, served.server.state.connections)
            gc.disable()
            try:
                client.transport.abort()
                await until(lambda: connection() is None)
            finally:
                gc.enable()

    play("uvloop", scenario)
