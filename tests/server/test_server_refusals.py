"""What ends a connection, with a reason in the log, while others are served."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ErrorCode, InvariantBroken, KafkaError
from penstock.protocol.codec import decode
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.server.dispatch import Handler
from penstock.server.state import Bounds
from penstock.world import World
from tests.server.serving import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    heartbeat,
    raw_request,
    respond_now,
    serving,
)
from tests.world.both_worlds import Play

BAD = {
    "oversized": (struct.pack(">i", 1_001), "frame size 1001, at most 1000 is allowed"),
    "largest": (b"\x7f\xff\xff\xff", "frame size 2147483647"),
    "negative": (struct.pack(">i", -1), "frame size -1"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speak HTTP"),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "speak TLS"),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", "speak SSH"),
    "empty": (struct.pack(">i", 0), "too short for a header"),
    "short": (struct.pack(">i", 3) + b"abc", "too short for a header"),
    "unknown key": (raw_request(9_999, 0, 1), "unknown API key 9999"),
    "negative key": (raw_request(-1, 0, 1), "unknown API key -1"),
    "not served": (
        raw_request(3, 1, 1),
        "Metadata .API key 3. is not served on listener PLAINTEXT",
    ),
    "version too new": (
        raw_request(HEARTBEAT, 5, 1, b"\x00"),
        "Heartbeat v5 is not served, only v0 to v4",
    ),
    "negative version": (raw_request(HEARTBEAT, -1, 1), "Heartbeat v-1 is not served"),
    "version too old": (raw_request(FETCH, 3, 1), "Fetch v3 is not served, only v4 to v18"),
    "body cut short": (raw_request(HEARTBEAT, 0, 1, b"\x00\x05ab"), "HeartbeatRequest v0"),
    "garbage": (
        struct.pack(">i", 40) + b"\x00\x0c\x00\x04" + b"\xff" * 36,
        "varint at byte 10 is longer than 32 bits",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_ends_the_connection_with_a_reason(
    play: Play, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, reason = BAD[kind]

    async def scenario(world: World) -> tuple[list[int], int]:
        handlers: dict[int, Handler] = {HEARTBEAT: respond_now, FETCH: respond_now}
        async with serving(world, handlers, Bounds(max_request_bytes=1_000)) as served:
            good, bad = await served.connect(), await served.connect()
            bad.send(heartbeat(1), data, heartbeat(2))
            await bad.wait_lost()
            good.send(heartbeat(3))
            assert await good.wait_responses(1) == [3]
            return bad.order, served.server.counters.connections_broken

    with caplog.at_level(logging.WARNING, "penstock.server"):
        order, broken = play(scenario)
    assert 2 not in order
    assert broken == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "closed the connection from" in caplog.text
    assert re.search(reason, caplog.text)


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_unknown_versions_of_api_versions_get_a_response_of_version_0(
    play: Play, version: int
) -> None:
    async def scenario(world: World) -> ApiVersionsResponse:
        def never(*_: Any) -> None:
            raise AssertionError("the handler must not be asked")

        handlers: dict[int, Handler] = {
            API_VERSIONS: never,
            HEARTBEAT: respond_now,
            FETCH: respond_now,
        }
        async with serving(world, handlers) as served:
            client = await served.connect()
            tagged = b"\x00" if version >= 3 else b""
            client.send(
                raw_request(API_VERSIONS, version, 5, tagged + b"whatever is in there"),
                heartbeat(6),
            )
            assert await client.wait_responses(2) == [5, 6]
            return decode(ApiVersionsResponse, 0, client.responses[0][1])

    response = play(scenario)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [
        (1, 4, 18),
        (12, 0, 4),
        (18, 0, 4),
    ]


def raising(error: BaseException) -> Handler:
    def handle(*_: Any) -> None:
        raise error

    return handle


def raising_later(error: BaseException) -> Handler:
    async def fail() -> None:
        await asyncio.sleep(0.001)
        raise error

    return lambda *_: fail()


def returning(result: object) -> Handler:
    return lambda *_: result


async def coroutine_function(*_: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (raising(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "gone")), "UNKNOWN_TOPIC_ID: gone"),
        (raising(ValueError("a mistake")), "a mistake"),
        (raising(OSError(5, "the disk")), "the disk"),
        (raising_later(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "gone")), "UNKNOWN_TOPIC_ID: gone"),
        (raising_later(ValueError("a mistake")), "a mistake"),
        (returning("no response at all"), "a handler failed"),
        (coroutine_function, "coroutine function"),
    ],
)
def test_an_exception_in_a_handler_is_logged_and_ends_the_connection(
    play: Play, handler: Handler, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> tuple[list[int], int]:
        async with serving(world, {HEARTBEAT: handler, FETCH: respond_now}) as served:
            client = await served.connect()
            client.send(heartbeat(1))
            await client.wait_lost()
            again = await served.connect()
            assert not again.lost.is_set()
            return client.order, served.server.counters.handler_errors

    assert play(scenario) == ([], 1)
    assert any(record.exc_info for record in caplog.records) == (
        "UNKNOWN_TOPIC_ID" not in reason
    )  # the reason is enough
    assert reason in caplog.text


@pytest.mark.parametrize("make", [raising, raising_later])
def test_a_broken_invariant_stops_the_server(
    play: Play, make: Callable[[BaseException], Handler]
) -> None:
    async def scenario(world: World) -> None:
        async with serving(world, make(InvariantBroken("two leaders"))) as served:
            client, other = await served.connect(), await served.connect()
            client.send(heartbeat(1))
            await client.wait_lost()
            await other.wait_lost()
            with pytest.raises(InvariantBroken, match="two leaders"):
                await served.server.wait_failed()

    play(scenario)
