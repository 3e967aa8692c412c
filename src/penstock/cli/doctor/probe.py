"""Finds out what an address leads to: a broker, another server, or nothing.

Each step has a deadline: the name is resolved, a connection is opened, ApiVersions and Metadata are
sent. If that fails, a TLS handshake and an HTTP request show what listens there instead.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from contextlib import suppress

from penstock.cli.doctor.refusals import refusal_of
from penstock.client.connection import Connection, choose_version, open_connection
from penstock.client.errors import NotKafka, reason
from penstock.errors import KafkaError
from penstock.health.observations import Probe, Reach
from penstock.protocol.apis import APIS, Api, find_api
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world import World

CLIENT_ID = "penstock-doctor"
_UNKNOWN_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EADDRNOTAVAIL)
# The APIs that every client needs.
_NEEDED = (0, 1, 2, 3, 18)
_PRODUCE = 0
# Enough of another server's answer to recognise it.
_BANNER_BYTES = 64
# A server that speaks first, such as SSH or SMTP, does so within this time.
_SNIFF_S = 1.0


async def probe(world: World, host: str, port: int, timeout_s: float) -> Probe:
    """Return what the address leads to, within three times the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await _resolve(host, port)
    except TimeoutError:
        detail = f"no answer within {timeout_s:g} s"
        return Probe(host, port, Reach.NAME_SERVER, detail)
    except UnicodeError as error:
        return Probe(host, port, Reach.UNKNOWN_HOST, str(error))
    except OSError as error:
        unknown = isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST
        return Probe(
            host, port, Reach.UNKNOWN_HOST if unknown else Reach.NAME_SERVER, reason(error)
        )
    failed = await _connect(host, port, addresses, timeout_s)
    if failed is not None:
        return failed
    return await _speak(world, host, port, addresses, timeout_s)


async def _resolve(host: str, port: int) -> tuple[str, ...]:
    """Resolve a name in a daemon thread: asyncio's own threads are waited for at exit, and a name
    server may not answer for a long time."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def settle(result: tuple[str, ...] | Exception) -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def look_up() -> None:
        result: tuple[str, ...] | Exception
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = tuple(dict.fromkeys(str(address[4][0]) for address in found))
        except (OSError, UnicodeError) as error:
            result = error
        # The event loop is closed if doctor has given up waiting.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=look_up, daemon=True, name=f"resolve {host}").start()
    return await future


async def _connect(
    host: str, port: int, addresses: tuple[str, ...], timeout_s: float
) -> Probe | None:
    """Return a Probe if no address accepts a connection, else None."""
    failure = Probe(host, port, Reach.UNKNOWN_HOST, "the name has no addresses")
    for address in addresses[:4]:
        try:
            async with asyncio.timeout(timeout_s / min(len(addresses), 4)):
                _reader, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            failure = Probe(host, port, Reach.TIMED_OUT, addresses=addresses)
        except ConnectionRefusedError:
            failure = Probe(host, port, Reach.REFUSED, addresses=addresses)
        except OSError as error:
            unreachable = error.errno in _UNREACHABLE
            kind = Reach.UNREACHABLE if unreachable else Reach.TIMED_OUT
            failure = Probe(host, port, kind, reason(error), addresses)
        else:
            writer.transport.abort()
            return None
    return failure


async def _speak(
    world: World, host: str, port: int, addresses: tuple[str, ...], timeout_s: float
) -> Probe:
    try:
        connection = await open_connection(
            world,
            host,
            port,
            client_id=CLIENT_ID,
            connect_timeout_s=timeout_s,
            request_timeout_s=timeout_s,
        )
    except KafkaError as error:
        refused = await refusal_of(error, host, port)
        if refused is not None:
            return Probe(host, port, *refused, addresses)
        return await _sniff(host, port, addresses, error)
    try:
        return await _describe(world, connection, host, port, addresses)
    finally:
        connection.close()


async def _describe(
    world: World, connection: Connection, host: str, port: int, addresses: tuple[str, ...]
) -> Probe:
    """Classify a server that answered ApiVersions."""
    names = {api.key: api.name for api in APIS}
    versions = {
        names[key]: (theirs.first, theirs.last)
        for key, theirs in connection.broker_versions.items()
        if key in names
    }
    if _PRODUCE not in connection.broker_versions:
        return Probe(host, port, Reach.CONTROLLER, addresses=addresses, versions=versions)
    for key in _NEEDED:
        api: Api = find_api(key)
        try:
            choose_version(api, connection.broker_versions)
        except KafkaError as error:
            return Probe(host, port, Reach.VERSION, error.message, addresses, versions=versions)
    asked = world.clock.monotonic()
    try:
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        response = await connection.call(request, MetadataResponse)
    except KafkaError as error:
        return Probe(host, port, Reach.AUTHENTICATION, error.message, addresses, versions=versions)
    return Probe(
        host,
        port,
        Reach.KAFKA,
        addresses=addresses,
        cluster_id=response.cluster_id,
        versions=versions,
        metadata_offset=connection.finalized_features_epoch,
        round_trip_ms=round((world.clock.monotonic() - asked) * 1000),
    )


async def _sniff(host: str, port: int, addresses: tuple[str, ...], error: KafkaError) -> Probe:
    """Find out what else listens on a port that does not answer ApiVersions."""
    is_tls, answer = await asyncio.gather(_speaks_tls(host, port), _answer_to_http(host, port))
    if is_tls:
        return Probe(host, port, Reach.TLS, addresses=addresses)
    if answer.startswith(b"HTTP/"):
        first_line = answer.splitlines()[0].decode("latin-1")
        return Probe(host, port, Reach.HTTP, first_line, addresses)
    if answer and answer[:1].isalnum():
        shown = answer.splitlines()[0].decode("latin-1")
        return Probe(host, port, Reach.OTHER_PROTOCOL, f"it answers {shown!r}", addresses)
    if isinstance(error, NotKafka):
        return Probe(host, port, Reach.OTHER_PROTOCOL, error.message, addresses)
    closed = "closed the connection" in error.message
    return Probe(host, port, Reach.CLOSED if closed else Reach.SILENT, error.message, addresses)


async def _speaks_tls(host: str, port: int) -> bool:
    """Return True if a TLS handshake succeeds, or fails as between TLS peers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_SNIFF_S):
            _reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        # An alert is an answer in TLS, such as the request for a client certificate.
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    writer.transport.abort()
    return True


async def _answer_to_http(host: str, port: int) -> bytes:
    """Return the first bytes that the server sends after an HTTP request, or empty bytes."""
    try:
        async with asyncio.timeout(_SNIFF_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                return await reader.read(_BANNER_BYTES)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return b""
