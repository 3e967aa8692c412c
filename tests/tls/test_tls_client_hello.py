"""The first message of a client: groups that would block the event loop, and hostile bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from penstock.security.tls.client_hello import HelloRefused, check_hello, missing_bytes
from penstock.world import World
from tests.server.serving import heartbeat, respond_now
from tests.tls.tls_serving import play, serving_tls

P_256, X25519, FFDHE_8192, UNKNOWN = 23, 29, 0x0104, 0x5A5A
HANDSHAKE_FAILURE = bytes.fromhex("15 03 03 00 02 02 28")
FINITE_FIELD = "Diffie-Hellman in a finite field"


def vector(content: bytes, size_bytes: int = 2) -> bytes:
    return len(content).to_bytes(size_bytes) + content


def numbers(values: list[int]) -> bytes:
    return vector(b"".join(value.to_bytes(2) for value in values))


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2) + vector(content)


def client_hello(groups: list[int], shares: list[int], cut: int = 1 << 14) -> bytes:
    """Return a message of TLS 1.3, in records of up to `cut` bytes."""
    keys = b"".join(share.to_bytes(2) + vector(bytes(range(1, 129)) * 8) for share in shares)
    extensions = (
        extension(43, bytes([2, 3, 4]))
        + extension(13, numbers([0x0403, 0x0804]))
        + extension(10, numbers(groups))
        + extension(51, vector(keys))
    )
    suites, compressions = numbers([0x1301, 0x1302]), b"\x01\x00"
    body = b"\x03\x03" + bytes(32) + b"\x00" + suites + compressions + vector(extensions)
    message = b"\x01" + vector(body, 3)
    parts = [message[at : at + cut] for at in range(0, len(message), cut)]
    return b"".join(b"\x16\x03\x01" + vector(part) for part in parts)


def first_bytes_of(context: ssl.SSLContext) -> bytes:
    arrived, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(arrived, sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_hellos_of_clients_are_complete_with_their_last_byte(trusting: ssl.SSLContext) -> None:
    hello = first_bytes_of(trusting)
    assert all(
        0 < missing_bytes(hello[:count]) <= len(hello) - count for count in range(len(hello))
    )
    assert missing_bytes(hello) == missing_bytes(hello + b"more") == 0
    check_hello(hello)


@pytest.mark.parametrize("cut", [1, 7, 1 << 14])
@pytest.mark.parametrize(
    ("groups", "shares", "is_refused"),
    [
        ([X25519, P_256], [X25519], False),
        ([X25519, FFDHE_8192], [X25519], False),
        ([X25519, FFDHE_8192], [], False),
        ([FFDHE_8192], [FFDHE_8192], True),
        ([X25519, FFDHE_8192], [FFDHE_8192], True),
        ([X25519, FFDHE_8192], [FFDHE_8192, X25519], True),
        ([X25519], [UNKNOWN, FFDHE_8192], True),
        ([FFDHE_8192], [], True),
        ([UNKNOWN, FFDHE_8192], [UNKNOWN], True),
        ([UNKNOWN], [UNKNOWN], False),
    ],
)
def test_groups_in_finite_fields_are_refused(
    groups: list[int], shares: list[int], is_refused: bool, cut: int
) -> None:
    hello = client_hello(groups, shares, cut)
    if not is_refused:
        check_hello(hello)
        return
    with pytest.raises(HelloRefused, match=FINITE_FIELD):
        check_hello(hello)


def test_hostile_first_messages_are_refused() -> None:
    hello = client_hello([X25519], [X25519])
    split = client_hello([X25519], [X25519], 10)
    for received in (
        split[:15] + b"\x15\x03\x01\x00\x02\x01\x00" + split[15:],  # OpenSSL would ignore it
        b"\x15\x03\x01\x00\x02\x01\x00" + hello,
        b"\x14\x03\x01\x00\x01\x01" + hello,
        b"\x16\x03\x01\xff\xff",
        client_hello([X25519], [X25519] * 20, 100),
    ):
        with pytest.raises(HelloRefused):
            missing_bytes(received)
    # Each byte cut off but the last ones of its own: the lengths around it say that more follows.
    for count in range(60, len(hello) - 9, 50):
        body = hello[9:count]
        with pytest.raises(HelloRefused, match="malformed"):
            check_hello(b"\x16\x03\x01" + vector(b"\x01" + vector(body, 3)))
    assert missing_bytes(b"GET / HTTP/1.1\r\n\r\n") == 0


def test_a_client_with_a_finite_field_gets_an_alert_and_a_line_in_the_log(
    loop: str,
    settings: dict[str, str],
    trusting: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """OpenSSL takes 0.1 s of the event loop for such a client."""

    async def scenario(world: World) -> tuple[bytes, list[int]]:
        async with serving_tls(world, respond_now, settings) as served:
            event_loop = asyncio.get_running_loop()
            with socket.create_connection(("localhost", served.port)) as attacker:
                attacker.setblocking(False)
                hello = client_hello([FFDHE_8192], [FFDHE_8192])
                for part in (hello[:1], hello[1:50], hello[50:]):
                    await event_loop.sock_sendall(attacker, part)
                    await asyncio.sleep(0)
                received = b""
                async with asyncio.timeout(10):
                    while data := await event_loop.sock_recv(attacker, 10_000):
                        received += data
            other = await served.connect(trusting)
            other.send(heartbeat(1))
            return received, await other.wait_responses(1)

    assert play(loop, scenario) == (HANDSHAKE_FAILURE, [1])
    assert FINITE_FIELD in caplog.text
