"""One connection to one broker, with API versions, pipelining and response matching.

A request that times out closes the connection: responses arrive in order, so the responses behind
it would be late as well. Must not know partition leaders, and must not retry.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from penstock.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    NotABroker,
    NotKafka,
    SaslRefused,
    UnknownHost,
    check,
    reason,
)
from penstock.client.in_flight import FrameReader, InFlightRequests, PendingRequest
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.protocol.apis import Api, api_of, find_api
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import API_VERSIONS_KEY
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.schema import Versions
from penstock.security.tls.network import TlsRefused
from penstock.world import World

T = TypeVar("T")

API_VERSIONS_REQUEST = ApiVersionsRequest(
    client_software_name="penstock", client_software_version="0.1.0"
)

# The errors of a host name that does not exist. EAI_AGAIN is not among them: the name server did
# not answer.
_UNKNOWN_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


def broker_versions(api_keys: Iterable[ApiVersionsResponse.ApiKey]) -> dict[int, Versions]:
    """Return the version range a broker supports for each API key."""
    return {api.api_key: Versions(api.min_version, api.max_version) for api in api_keys}


def choose_version(
    api: Api,
    supported: Mapping[int, Versions],
    max_version: int | None = None,
    *,
    unstable: bool = False,
) -> int:
    """Return the highest version of an API that both sides support.

    An unstable version is chosen only with `unstable`. Raises KafkaError UNSUPPORTED_VERSION if
    there is no common version.
    """
    theirs = supported.get(api.key)
    if theirs is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not support {api.name}")
    newest_unstable = api.newest_unstable and not unstable
    ours = Versions(api.versions.first, api.versions.last - newest_unstable)
    highest = min(ours.last, theirs.last, ours.last if max_version is None else max_version)
    if highest < max(ours.first, theirs.first):
        message = f"the broker supports {api.name} versions {theirs}, this client {ours}"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            message
            if max_version is None
            else f"{message}, and this request needs version {max_version} or lower",
        )
    return highest


class Connection(asyncio.Protocol):
    """Created by `open_connection`.

    `send` writes synchronously, so requests go out in the order of the calls.
    """

    def __init__(self, address: str, client_id: str, timeout_s: float) -> None:
        self.address = address
        # Called once, when the connection no longer accepts requests.
        self.on_closed: Callable[[], None] = lambda: None
        self.broker_versions: Mapping[int, Versions] = {}
        # The cluster's feature levels, as of the epoch at which the connection was opened.
        self.finalized_features: Mapping[str, int] = {}
        self.finalized_features_epoch = -1
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._in_flight = InFlightRequests()
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._retiring = False
        self._last_used_s = self._loop.time()
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def closed(self) -> bool:
        return self._error is not None

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def idle_s(self) -> float:
        """Return the time since the last request or response."""
        return 0.0 if self.in_flight else self._loop.time() - self._last_used_s

    async def call(
        self,
        request: object,
        response: type[T],
        *,
        max_version: int | None = None,
        unstable: bool = False,
        timeout_s: float | None = None,
    ) -> T:
        """Send a request and return its response.

        Raises ConnectionFailed if the broker disconnects or does not respond in time.
        """
        await self._writable.wait()
        return await self.send(
            request, response, max_version=max_version, unstable=unstable, timeout_s=timeout_s
        )

    def send(
        self,
        request: object,
        response: type[T],
        *,
        max_version: int | None = None,
        unstable: bool = False,
        timeout_s: float | None = None,
    ) -> asyncio.Future[T]:
        """Write a request now and return a future of its response."""
        api = api_of(type(request))
        version = choose_version(api, self.broker_versions, max_version, unstable=unstable)
        return self._send(
            request, response, api, version, self._timeout_s if timeout_s is None else timeout_s
        )

    def send_without_response(self, request: object, *, max_version: int | None = None) -> None:
        """Write a request that has no response: Produce with acks=0."""
        self._write(
            request,
            choose_version(api_of(type(request)), self.broker_versions, max_version),
            self._in_flight.next_correlation_id(),
        )

    async def negotiate_versions(self, timeout_s: float) -> None:
        """Ask the broker which API versions it supports.

        A broker that does not support our ApiVersions version responds with the range it
        supports; the request is then sent again in a supported version (KIP-511).
        """
        api = find_api(API_VERSIONS_KEY)
        response = await self._send(
            API_VERSIONS_REQUEST, ApiVersionsResponse, api, api.versions.last, timeout_s
        )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # Brokers before KIP-511 respond with an empty list, and support v0.
            supported = broker_versions(response.api_keys) or {API_VERSIONS_KEY: Versions(0, 0)}
            version = choose_version(api, supported)
            response = await self._send(
                API_VERSIONS_REQUEST, ApiVersionsResponse, api, version, timeout_s
            )
        check(response.error_code, f"{self.address} refused the ApiVersions request")
        self.broker_versions = broker_versions(response.api_keys)
        self.finalized_features_epoch = response.finalized_features_epoch
        self.finalized_features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }

    def retire(self) -> None:
        """Close the connection as soon as no request is in flight: its session ends soon
        (KIP-368). Its owner opens another one, and no request fails."""
        self._retiring = True
        if not self._in_flight:
            self.close()

    def close(self, error: Exception | None = None) -> None:
        """Close the connection and fail all pending requests with the error."""
        if self._error is None:
            self._error = error or ConnectionFailed(
                f"this client closed the connection to {self.address}"
            )
            self._writable.set()
            self._in_flight.fail(self._error)
            self.on_closed()
        if self._transport is not None:
            self._transport.abort() if error else self._transport.close()

    def _send(
        self, request: object, response: type[T], api: Api, version: int, timeout_s: float
    ) -> asyncio.Future[T]:
        correlation_id = self._in_flight.next_correlation_id()
        self._write(request, version, correlation_id)
        future: asyncio.Future[T] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._time_out, api.name, timeout_s)
        self._in_flight.add(correlation_id, PendingRequest(api, version, response, future, timer))
        return future

    def _write(self, request: object, version: int, correlation_id: int) -> None:
        if self._error is not None or self._transport is None:
            raise self._error or ConnectionFailed(f"the connection to {self.address} is not open")
        self._last_used_s = self._loop.time()
        self._transport.writelines(
            cast("list[Any]", frame_request(request, version, correlation_id, self._client_id))
        )

    def _time_out(self, name: str, timeout_s: float) -> None:
        self.close(
            ConnectionFailed(f"{self.address} did not respond to {name} within {timeout_s:g} s")
        )

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._last_used_s = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                self._in_flight.complete(frame)
        except ProtocolError as error:
            self.close(NotKafka(f"{self.address} does not speak Kafka's protocol: {error}"))
        if self._retiring and not self._in_flight:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        because = f": {reason(error)}" if isinstance(error, OSError) else ""
        self.close(ConnectionFailed(f"{self.address} closed the connection{because}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


async def open_connection(
    world: World,
    host: str,
    port: int,
    *,
    client_id: str,
    connect_timeout_s: float,
    request_timeout_s: float,
) -> Connection:
    """Connect and negotiate versions.

    Raises ConnectionFailed if the broker cannot be reached, NotKafka if it is not a broker.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(connect_timeout_s):
            _transport, protocol = await world.network.connect(
                lambda: Connection(address, client_id, request_timeout_s), host, port
            )
    except TimeoutError as error:
        raise ConnectionFailed(
            f"cannot connect to {address}: timed out after {connect_timeout_s:g} s"
        ) from error
    except UnicodeError as error:
        # Python encodes host names as IDNA, which refuses empty and long labels.
        raise UnknownHost(f"cannot connect to {address}: {error}") from error
    except TlsRefused as error:
        raise NotABroker(f"cannot connect to {address}: {error}") from error
    except SaslRefused as error:
        raise AuthenticationFailed(f"cannot authenticate to {address}: {error}") from error
    except OSError as error:
        unknown = isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST
        raise (UnknownHost if unknown else ConnectionFailed)(
            f"cannot connect to {address}: {reason(error)}"
        ) from error
    connection = cast(Connection, protocol)
    try:
        await connection.negotiate_versions(connect_timeout_s)
    except NotKafka:
        raise
    except ConnectionFailed as error:
        raise ConnectionFailed(
            f"{error.message} before it answered ApiVersions: is this the listener of a Kafka "
            "broker, and its security.protocol that of this client?"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
