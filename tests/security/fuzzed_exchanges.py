"""Mutated exchanges of clients that are not authenticated, against a node in another process.

An exchange is what a client sends until it is authenticated, one step after the other: a step sees
the response to the one before, so that the mutated step may be any of them, and those before it are
valid. The seed and the number of an exchange determine what it sends, but for nonces and keys.

Kinds of exchanges: SASL with each mechanism in plain text and within TLS, ClientHello and the later
bytes of a TLS handshake, and frames with wrong lengths.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from penstock.errors import ProtocolError
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.sasl.mechanism import SaslFailed
from penstock.security.sasl.scram import ScramClient
from penstock.security.sasl.scram_credential import SCRAM_MECHANISMS

# An answer of the node takes milliseconds. A mutated length makes it wait for more bytes; then the
# exchange ends without an answer.
ANSWER_S = 0.1
CLOSED_S = 30.0
AT_ONCE = 48
AUTHENTICATE = 36
# The correlation id of the request after an authentication: only its response has it.
METADATA_ID = 0x7A_65_71_69
INTEGERS = (
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0",
    b"\x7f\xff",
)

# A step gets the body of the response to the step before, and returns a frame.
Step = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Targets:
    """Ports of a node, with the kind of exchange that each gets, and what a client needs."""

    sasl: int
    sasl_ssl: int
    mutual: int
    controller: int
    trust: ssl.SSLContext
    # The password of alice by mechanism; a token for OAUTHBEARER.
    secrets: Mapping[str, str]


class Bypassed(Exception):
    """The node served a client that is not authenticated."""


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change a frame in one to four places. Half of the results have the length of what follows."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 2, 4, 16, 200)))
        match rng.randrange(8):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                del changed[at:end]
            case 3:
                changed[at:at] = rng.randbytes(rng.choice((1, 2, 8, 1_000)))
            case 4:
                changed[at:at] = changed[at:end] * rng.choice((1, 2, 50))
            case 5:
                integer = rng.choice(INTEGERS)
                changed[at : at + len(integer)] = integer
            case 6:
                changed[at:end] = rng.choice(
                    (b",", b"=", b"\0", b"n,,", b"\xc3\x28", b"\xff", b"A")
                )
            case _:
                changed[at:end] = rng.randbytes(end - at)
    if rng.random() < 0.5 and len(changed) >= 4:
        changed[:4] = struct.pack(">i", len(changed) - 4)
    return bytes(changed)


# SASL


def framed(request: object, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(
        bytes(part)
        for part in frame_request(request, version, correlation_id, "fuzz")
        if isinstance(part, bytes | bytearray | memoryview)
    )


def steps_of(mechanism: str, secret: str, rng: random.Random) -> Iterator[Step]:
    """Yield the steps of an authentication of alice, and a request after it."""
    raw = rng.random() < 0.15
    token_version = rng.randrange(3)
    versions = framed(ApiVersionsRequest(), rng.randrange(4))
    handshake = framed(SaslHandshakeRequest(mechanism=mechanism), 0 if raw else 1)

    def wrapped(token: bytes) -> bytes:
        if raw:
            return struct.pack(">i", len(token)) + token
        return framed(SaslAuthenticateRequest(auth_bytes=token), token_version)

    def unwrapped(response: bytes) -> bytes:
        if raw:
            return response
        _header, end = decode_response_header(AUTHENTICATE, token_version, response)
        return bytes(decode(SaslAuthenticateResponse, token_version, response[end:]).auth_bytes)

    if rng.random() < 0.7:
        yield lambda _response: versions
    yield lambda _response: handshake
    if mechanism in SCRAM_MECHANISMS:
        nonce = f"{rng.randrange(2**64):x}"
        client = ScramClient(SCRAM_MECHANISMS[mechanism], "alice", secret, nonce)
        yield lambda _response: wrapped(client.first())
        yield lambda response: wrapped(client.evaluate(unwrapped(response)) or b"")
    elif mechanism == "PLAIN":
        yield lambda _response: wrapped(f"\0alice\0{secret}".encode())
    else:
        yield lambda _response: wrapped(f"n,,\1auth=Bearer {secret}\1\1".encode())
    yield lambda _response: framed(MetadataRequest(topics=()), 9, METADATA_ID)


class Fuzz:
    """Runs exchanges by their numbers. `done` counts what they were."""

    def __init__(self, targets: Targets, seed: int, host: str = "127.0.0.1") -> None:
        self._targets = targets
        self._seed = seed
        self._host = host
        self.done: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await self.exchange(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())

    async def exchange(self, number: int) -> None:
        rng = random.Random(f"{self._seed}:{number}")
        kind = rng.choices(
            (self._sasl, self._sasl_in_tls, self._hello, self._late_handshake, self._framing),
            (50, 8, 22, 8, 12),
        )[0]
        self.done[kind.__name__.strip("_")] += 1
        try:
            async with asyncio.timeout(CLOSED_S):
                await kind(rng)
        except (OSError, asyncio.IncompleteReadError, SaslFailed, ProtocolError):
            # The node closed the connection, or its answer is that to a mutated message.
            self.done["refused"] += 1

    async def _sasl(self, rng: random.Random) -> None:
        port = rng.choice((self._targets.sasl, self._targets.sasl, self._targets.controller))
        reader, writer = await asyncio.open_connection(self._host, port)
        try:
            await self._authenticate(reader, writer, rng)
        finally:
            writer.transport.abort()

    async def _sasl_in_tls(self, rng: random.Random) -> None:
        reader, writer = await asyncio.open_connection(
            self._host, self._targets.sasl_ssl, ssl=self._targets.trust
        )
        try:
            await self._authenticate(reader, writer, rng)
        finally:
            writer.transport.abort()

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random
    ) -> None:
        mechanism = rng.choice(list(self._targets.secrets))
        may_pass = rng.random() < 0.5
        secret = self._targets.secrets[mechanism] if may_pass else "wrong"
        steps = list(steps_of(mechanism, secret, rng))
        target = rng.randrange(len(steps) - 1)
        if rng.random() < 0.1:
            # A step comes before its turn. If it is Metadata, the client is not authenticated yet.
            steps[target], steps[target + 1] = steps[target + 1], steps[target]
            may_pass &= target + 1 < len(steps) - 1
        response = received = b""
        for number, step in enumerate(steps):
            frame = step(response)
            if reader.at_eof():
                break
            writer.write(mutated(frame, rng) if number == target else frame)
            try:
                wait_s = CLOSED_S if number < target else ANSWER_S
                response = await asyncio.wait_for(read_frame(reader), wait_s)
            except TimeoutError:
                if number < target:
                    raise
            received += response
        if writer.can_write_eof() and not reader.at_eof():
            writer.write_eof()
            received += await read_all(reader)
        if METADATA_ID.to_bytes(4) in received:
            self.done["authenticated"] += 1
            if not may_pass:
                raise Bypassed(f"a client without the secret of {mechanism} got {received!r}")

    # TLS

    async def _hello(self, rng: random.Random) -> None:
        port = rng.choice((self._targets.mutual, self._targets.sasl_ssl))
        context = rng.choice((self._targets.trust, older()))
        _end, _incoming, outgoing = client_end(context)
        await self._send_raw(port, [mutated_record(outgoing.read(), rng)], rng)

    async def _late_handshake(self, rng: random.Random) -> None:
        """Mutate what the client sends after ServerHello: keys, Finished, and its first request."""
        port = rng.choice((self._targets.mutual, self._targets.sasl_ssl))
        end, incoming, outgoing = client_end(rng.choice((self._targets.trust, older())))
        reader, writer = await asyncio.open_connection(self._host, port)
        try:
            writer.write(outgoing.read())
            for _flight in range(8):
                incoming.write(await asyncio.wait_for(reader.read(65_536), CLOSED_S))
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                if data := outgoing.read():
                    break
            if rng.random() < 0.3:
                with suppress(ssl.SSLWantReadError, ssl.SSLError):
                    end.write(framed(ApiVersionsRequest(), 0))
                    data += outgoing.read()
            writer.write(mutated_record(data, rng))
            if rng.random() < 0.7:
                writer.write_eof()
            await read_all(reader)
        finally:
            writer.transport.abort()

    # Framing

    async def _framing(self, rng: random.Random) -> None:
        frame = framed(ApiVersionsRequest(), 0)
        lengths = (-1, -(2**31), 2**31 - 1, 0, 1, 7, 600_000, len(frame), rng.randrange(2**31))
        pieces = [struct.pack(">i", rng.choice(lengths)) + rng.randbytes(rng.choice((0, 1, 50)))]
        match rng.randrange(4):
            case 0:
                pieces = [frame * rng.choice((1, 2, 40)), *pieces]
            case 1:
                cut = rng.randrange(len(frame))
                pieces = [frame[:cut], frame[cut:], *pieces]
            case 2:
                pieces = [bytes([byte]) for byte in frame] + pieces
            case _:
                pieces = [rng.randbytes(rng.choice((1, 4, 100, 5_000)))]
        port = rng.choice((self._targets.sasl, self._targets.controller, self._targets.mutual))
        await self._send_raw(port, pieces, rng)

    async def _send_raw(self, port: int, pieces: list[bytes], rng: random.Random) -> None:
        reader, writer = await asyncio.open_connection(self._host, port)
        try:
            for piece in pieces:
                writer.write(piece)
            if rng.random() < 0.8:
                # The others are closed without a notice, by an RST.
                writer.write_eof()
                await read_all(reader)
        finally:
            writer.transport.abort()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while more := await reader.read(65_536):
        data += more
    return data


@cache
def older() -> ssl.SSLContext:
    """Return a context of TLS 1.2."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    return made


def client_end(context: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Return a client that has written its ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        end.do_handshake()
    return end, incoming, outgoing


def mutated_record(data: bytes, rng: random.Random) -> bytes:
    """Mutate bytes of TLS. Half of the results have the first record's right length, so that the
    change is in the message and not in the record."""
    changed = bytearray(mutated(data, rng))
    if rng.random() < 0.6 and len(changed) > 9 and len(changed) < 2**14:
        changed[:3] = b"\x16\x03\x01"
        changed[3:5] = struct.pack(">H", len(changed) - 5)
        if rng.random() < 0.7:
            changed[5:9] = b"\1" + (len(changed) - 9).to_bytes(3)
    return bytes(changed)
