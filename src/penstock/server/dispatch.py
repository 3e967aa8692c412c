"""From a frame to the handler of its API and version. Owns which requests are taken at all; it must
never know connections.

An API or version that is not served costs the peer its connection, as in Kafka: its header could be
read, but nothing tells how an answer would look to that client. ApiVersions is the exception
(KIP-511): a version of it that we do not know is answered as version 0 with UNSUPPORTED_VERSION and
what is served, so that the client can ask again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.handlers.context import RequestContext
from penstock.ids import Buffer
from penstock.protocol.apis import find_api, request_class
from penstock.protocol.codec import decoder_of
from penstock.protocol.headers import (
    API_VERSIONS_KEY,
    KEY_AND_VERSION_BYTES,
    RequestHeader,
    decode_request_header,
    request_header_version,
)
from penstock.server.context import Origin

# (parts, request, context) -> a response, an awaitable of one, or None where none is to be sent. A
# plain function: what it does before it returns is done in the order of the requests, and while the
# request's record batches (windows into the receive buffer) are good.
Handler = Callable[[Any, Any, RequestContext], object]

# Headers are rarely longer. The decoder copies what it is given, and a request may have megabytes
# of records behind its header.
_USUAL_HEADER_BYTES = 512


class Served(Protocol):
    """The versions of one API that have a handler, and those that are told to clients."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def advertised_first(self) -> int: ...


class _Route(NamedTuple):
    """What requests of one API and version have in common."""

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
        # By the first bytes of a request, its key and version.
        self._routes: dict[bytes, _Route] = {}

    def run(self, frame: memoryview, origin: Origin, now: float) -> tuple[RequestContext, object]:
        """Runs the synchronous part of a request. The version in the context is the one to answer
        with. ProtocolError where the request cannot be taken; whatever else the handler raises."""
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
        # What is left over after the message is ignored, as in Kafka: librdkafka's Metadata v13
        # ends in three bytes too many.
        request, _end = route.decode(frame[position:], 0)
        try:
            return context, route.handler(self._parts, request, context)
        except BaseException as error:
            error.add_note(describe(context))
            raise

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
                "after its request's buffer is used again. "
                "Make it a plain function that returns an awaitable"
            )
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
    """For the log: which request it was."""
    name = find_api(context.api_key).name
    return (
        f"while serving {name} v{context.version} of client {context.client_id!r} at "
        f"{context.peer} on {context.listener_name}"
    )


def _read_header(
    frame: memoryview, decode: Callable[[Buffer, int], tuple[RequestHeader, int]]
) -> tuple[RequestHeader, int]:
    if len(frame) > _USUAL_HEADER_BYTES:
        try:
            return decode(frame[:_USUAL_HEADER_BYTES], 0)
        except ProtocolError:
            pass  # a long client id perhaps: what is really wrong is said below
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
        origin.visit,
    )
