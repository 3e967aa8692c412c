"""Requests of this node to the active controller: a connection that follows it, forwarding of
clients' requests (KIP-590), and producer ids."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar, cast

from penstock.client.connection import Connection, open_connection
from penstock.client.errors import ConnectionFailed
from penstock.config.node import NodeConfig
from penstock.config.quorum import Address
from penstock.errors import ErrorCode, KafkaError
from penstock.node.controller.controller import NodeController
from penstock.node.controller.mutation_quota import under_quota
from penstock.node.shards.internal_topics import auto_created
from penstock.protocol.apis import api_of, response_class
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.headers import decode_response_header, encode_request_header
from penstock.protocol.internal.principal import DefaultPrincipalData
from penstock.protocol.internal.versioned import encode_versioned
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.security.principals import KafkaPrincipal
from penstock.security.quotas.client_quotas import MutationQuota
from penstock.world import World

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

# Between two attempts. An election takes tens of milliseconds, and the broker can do nothing else
# meanwhile.
_RETRY_S = 0.02
_CONNECT_TIMEOUT_S = 2.0
# For requests that have no timeout of their own.
_REQUEST_TIMEOUT_S = 30.0

# Of the CreateTopics request that creates a topic automatically.
_CREATE_TOPICS, _CREATE_TOPICS_VERSION = 19, 7

# Top-level errors after which the request is sent again, possibly to another controller.
_RETRIABLE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})


class Requester(Protocol):
    """The client of a request that the active controller executes."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def peer(self) -> str: ...

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def token_authenticated(self) -> bool: ...


class QuorumLeader(Protocol):
    """The part of `Quorum` that finds the active controller."""

    @property
    def leader_id(self) -> int | None: ...

    def voter_address(self, node_id: int) -> Address: ...


class ControllerChannel:
    """A connection to the active controller, reopened when another controller becomes active.
    `on_lost` is called when the connection closes."""

    def __init__(self, world: World, client_id: str, quorum: QuorumLeader) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self._world = world
        self._client_id = client_id
        self._quorum = quorum
        self._connection: Connection | None = None
        self._address: Address | None = None
        self._opening = asyncio.Lock()

    async def call(self, request: object, response: type[T], *, timeout_s: float) -> T:
        """Return the active controller's response. KafkaError REQUEST_TIMED_OUT if none arrives in
        time; the controller may have executed the request nevertheless."""
        deadline = self._world.clock.monotonic() + timeout_s
        reason = "no controller is known to lead the quorum"
        while (left_s := deadline - self._world.clock.monotonic()) > 0:
            try:
                connection = await self._connect()
                if connection is not None:
                    reply = await connection.call(request, response, timeout_s=left_s)
                    code = getattr(reply, "error_code", 0)
                    if code not in _RETRIABLE:
                        return reply
                    reason = f"{connection.address} answered {ErrorCode(code).name}"
            except ConnectionFailed as error:
                reason = error.message
            await asyncio.sleep(_RETRY_S)
        name = type(request).__name__.removesuffix("Request")
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no controller answered {name} within {timeout_s:g} s: {reason}",
        )

    async def _connect(self) -> Connection | None:
        async with self._opening:
            leader = self._quorum.leader_id
            address = None if leader is None else self._quorum.voter_address(leader)
            if self._connection is not None and (
                self._connection.closed or address != self._address
            ):
                self._connection.close()
                self._connection = None
            if self._connection is None and address is not None:
                self._connection = await open_connection(
                    self._world,
                    address.host,
                    address.port,
                    client_id=self._client_id,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                    request_timeout_s=_CONNECT_TIMEOUT_S,
                )
                self._address = address
                self._connection.on_closed = self.on_lost
            return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.on_closed = lambda: None
            self._connection.close()


class Controllers:
    """Asks the active controller: directly if it is this node (`local`), otherwise in an Envelope.

    `wait_topics` returns when this node's metadata has the topics.
    """

    def __init__(
        self,
        config: NodeConfig,
        channel: ControllerChannel,
        local: NodeController | None,
        wait_topics: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        self._config = config
        self._channel = channel
        self._local = local
        self._wait_topics = wait_topics

    async def ask(
        self,
        request: Q,
        decide: Callable[[NodeController, Q], Awaitable[R]],
        *,
        version: int,
        requester: Requester | None = None,
    ) -> R:
        """Return the active controller's response. `decide` executes the request if this node is
        the active controller. Without a requester the request is this node's own."""
        if self._local is not None and self._local.is_active:
            try:
                return await decide(self._local, request)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
        timeout_s = getattr(request, "timeout_ms", _REQUEST_TIMEOUT_S * 1000) / 1000
        return cast(R, await self._forward(request, version, requester, timeout_s))

    async def _forward(
        self, request: object, version: int, requester: Requester | None, timeout_s: float
    ) -> object:
        """Forward a request with the client's principal, or without one if it is this node's own:
        then the controller takes the principal of the connection."""
        api = api_of(type(request))
        client_id = None if requester is None else requester.client_id
        envelope = EnvelopeRequest(
            request_data=encode_request_header(api.key, version, 0, client_id)
            + encode_bytes(request, version),
            request_principal=None if requester is None else _encoded(requester),
            client_host_address=_inet_address("" if requester is None else requester.peer),
        )
        reply = await self._channel.call(envelope, EnvelopeResponse, timeout_s=timeout_s)
        if reply.error_code or reply.response_data is None:
            code = ErrorCode(reply.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            raise KafkaError(
                code, f"the controller refused the forwarded {api.name} request: {code.name}"
            )
        _header, end = decode_response_header(api.key, version, reply.response_data)
        return cast(object, decode(response_class(api.key), version, reply.response_data[end:]))

    async def create_missing(
        self, names: Iterable[str], requester: Requester | None = None
    ) -> dict[str, KafkaError | None]:
        """Create topics that a client names or a coordinator needs, and wait until this node knows
        them. Return the error of each topic, None if it was created."""
        # Imported on first use so that a node starts quickly.
        from penstock.controller.topics.create import create_topics
        from penstock.protocol.messages.create_topics import (
            CreateTopicsRequest,
            CreateTopicsResponse,
        )

        def decide(
            controller: NodeController,
            request: CreateTopicsRequest,
            mutations: MutationQuota | None = None,
        ) -> Awaitable[CreateTopicsResponse]:
            return controller.decide(create_topics, request, mutations)

        response = await self.ask(
            auto_created(self._config, names),
            under_quota(decide, requester, _CREATE_TOPICS, _CREATE_TOPICS_VERSION),
            version=_CREATE_TOPICS_VERSION,
            requester=requester,
        )
        await self._wait_topics([topic.name for topic in response.topics if not topic.error_code])
        return {
            topic.name: KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
            if topic.error_code
            else None
            for topic in response.topics
        }


class ProducerIds:
    """Producer ids from the blocks that the controller allocates to this broker."""

    def __init__(
        self, node_id: int, channel: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._block = range(0)
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        # Imported on first use so that a node starts quickly.
        from penstock.protocol.messages.allocate_producer_ids import (
            AllocateProducerIdsRequest,
            AllocateProducerIdsResponse,
        )

        async with self._allocating:
            if not self._block:
                request = AllocateProducerIdsRequest(
                    broker_id=self._node_id, broker_epoch=self._broker_epoch()
                )
                response = await self._channel.call(
                    request, AllocateProducerIdsResponse, timeout_s=_REQUEST_TIMEOUT_S
                )
                if response.error_code:
                    raise KafkaError(
                        ErrorCode(response.error_code), "the controller allocated no producer ids"
                    )
                first = response.producer_id_start
                self._block = range(first, first + response.producer_id_len)
            self._block, producer_id = self._block[1:], self._block[0]
            return producer_id


def _encoded(requester: Requester) -> bytes:
    principal = requester.principal
    return encode_versioned(
        DefaultPrincipalData(
            type=principal.type,
            name=principal.name,
            token_authenticated=requester.token_authenticated,
        )
    )


def _inet_address(peer: str) -> bytes:
    """Return the host of host:port as the bytes of a Java InetAddress, or the loopback address if
    it is not an IP address."""
    try:
        host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
        return ipaddress.ip_address(host).packed
    except ValueError:
        return bytes([127, 0, 0, 1])
