"""From a frame to the handler of its API and version.

A request for an API or version that is not served ends the connection, as in Kafka: no response
format is known for it. ApiVersions is the exception (KIP-511): an unknown version gets a response
of version 0 with UNSUPPORTED_VERSION and the versions that are served, so that the client can ask
again.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.handlers.audit_log import described
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.ids import Buffer
from penstock.limits import DECODED_BYTES_PER_BYTE
from penstock.protocol.apis import find_api, request_class
from penstock.protocol.codec import decoder_of
from penstock.protocol.headers import (
    API_VERSIONS_KEY,
    KEY_AND_VERSION_BYTES,
    RequestHeader,
    decode_request_header,
    request_header_version,
)
from penstock.protocol.layout import structs_of
from penstock.protocol.schema import fields_of
from penstock.server.request_log import AUDITED, audited, log_request, requests

# (parts, request, context) -> a response, an awaitable of one, or None where none is to be sent. A
# plain function: what it does before it returns is done in the order of the requests, and while the
# request's record batches (windows into the receive buffer) are good.
Handler = Callable[[Any, Any, RequestContext], object]

# Headers are rarely longer. The decoder copies its input, and a request may have megabytes of
# records after its header.
_USUAL_HEADER_BYTES = 512


class Served(Protocol):
    """The versions of one API that have a handler, and the first that ApiVersions returns."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def advertised_first(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the requests of a connection come from: the listener, the local address and the
    peer's."""

    listener_name: str
    local_host: str
    local_port: int
    peer: str
    connection: ConnectionHandle


class Dispatching(Protocol):
    """A `Dispatch`, or one that lets only some requests through."""

    def run(
        self, frame: memoryview, origin: Origin, now: float
    ) -> tuple[RequestContext, object]: ...

    def decoded_bytes(self, context: RequestContext, frame_bytes: int) -> int: ...


class _Route(NamedTuple):
    """How to decode and handle the requests of one API and version."""

    version: int
    decode_header: Callable[[Buffer, int], tuple[RequestHeader, int]]
    decode: Callable[[Buffer, int], tuple[Any, int]]
    handler: Handler


class Dispatch:
    """`load` gives the handler of an API when it is first asked for: importing all of them at the
    start would take long."""

    def __init__(
        self, parts: object, served: Mapping[int, Served], load: Callable[[int], Handler]
    ) -> None:
        self._parts = parts
        self._served = served
        self._load = load
        # By the first bytes of a request: API key and version.
        self._routes: dict[bytes, _Route] = {}
        # The APIs whose requests have record batches, which are not decoded.
        self._with_records: set[int] = set()

    def run(self, frame: memoryview, origin: Origin, now: float) -> tuple[RequestContext, object]:
        """Run the synchronous part of a request. The version in the context is that of the
        response. Raises ProtocolError if the request cannot be served, and what the handler
        raises."""
        route = self._routes.get(bytes(frame[:KEY_AND_VERSION_BYTES]))
        header, position = _read_header(
            frame, decode_request_header if route is None else route.decode_header
        )
        if route is None:
            key, version = header.request_api_key, header.request_api_version
            if key == API_VERSIONS_KEY and not self._serves(key, version):
                return _context(header, 0, origin, now), self._unsupported_version()
            route = self._routes[bytes(frame[:KEY_AND_VERSION_BYTES])] = self._find(
                key, version, origin
            )
        context = _context(header, route.version, origin, now)
        # Bytes after the message are ignored, as in Kafka: librdkafka's Metadata v13 has three too
        # many.
        request, _end = route.decode(frame[position:], 0)
        if requests.isEnabledFor(logging.DEBUG):
            log_request(request, context, len(frame))
        try:
            return context, route.handler(self._parts, request, context)
        except BaseException as error:
            error.add_note(describe(context))
            raise

    def decoded_bytes(self, context: RequestContext, frame_bytes: int) -> int:
        """Return about how much memory a decoded request takes. It is 0 for requests with record
        batches, which are windows into the receive buffer."""
        return 0 if context.api_key in self._with_records else frame_bytes * DECODED_BYTES_PER_BYTE

    def _serves(self, key: int, version: int) -> bool:
        served = self._served.get(key)
        return served is not None and served.first <= version <= served.last

    def _find(self, key: int, version: int, origin: Origin) -> _Route:
        name = find_api(key).name
        served = self._served.get(key)
        if served is None:
            raise ProtocolError(
                f"{name} (API key {key}) is not served on listener {origin.listener_name}"
            )
        if not served.first <= version <= served.last:
            raise ProtocolError(
                f"{name} v{version} is not served, only v{served.first} to v{served.last}"
            )
        handler = self._load(key)
        if inspect.iscoroutinefunction(handler):
            raise TypeError(
                f"the handler of {name} is a coroutine function: it would run out of order, and "
                "after the request's buffer is reused. Make it a plain function that returns an "
                "awaitable"
            )
        if key in AUDITED:
            handler = audited(handler)
        if any(
            field.kind == "records"
            for struct in structs_of(request_class(key))
            for field in fields_of(struct)
        ):
            self._with_records.add(key)
        decode_header = decoder_of(RequestHeader, request_header_version(key, version))
        return _Route(version, decode_header, decoder_of(request_class(key), version), handler)

    def _unsupported_version(self) -> object:
        from penstock.protocol.messages.api_versions import ApiVersionsResponse

        keys = tuple(
            ApiVersionsResponse.ApiKey(
                api_key=key, min_version=served.advertised_first, max_version=served.last
            )
            for key, served in sorted(self._served.items())
        )
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)


def describe(context: RequestContext) -> str:
    """Return the request's API, client and listener for the log."""
    return f"while serving {described(context)}"


def _read_header(
    frame: memoryview, decode: Callable[[Buffer, int], tuple[RequestHeader, int]]
) -> tuple[RequestHeader, int]:
    if len(frame) > _USUAL_HEADER_BYTES:
        try:
            return decode(frame[:_USUAL_HEADER_BYTES], 0)
        except ProtocolError:
            pass  # perhaps a long client id; otherwise the error is raised below
    return decode(frame, 0)


def _context(header: RequestHeader, version: int, origin: Origin, now: float) -> RequestContext:
    return RequestContext(
        header.request_api_key,
        version,
        header.correlation_id,
        header.client_id,
        origin.listener_name,
        origin.local_host,
        origin.local_port,
        origin.peer,
        now,
        origin.connection,
    )
