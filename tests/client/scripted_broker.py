"""A minimal broker for tests of the client.

It keeps one topic in memory, checks sequences as Kafka does, and injects the faults it is given.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.client.client import Client
from penstock.errors import ErrorCode
from penstock.ids import NO_SEQUENCE
from penstock.protocol.apis import request_class
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_response, split_frames
from penstock.protocol.headers import decode_request_header
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.batch import patch, validate
from penstock.records.record import Record, read_records
from penstock.world import World
from penstock.world.sim import Node, Simulation

PORT = 9092
TOPIC = "events"
TOPIC_ID = UUID(int=1234)
SERVED = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 18: (0, 4), 22: (0, 5)}


@dataclass(frozen=True)
class Refuse:
    """Do not write the next produce request, or its batch of one partition; respond with this error
    code."""

    code: ErrorCode
    partition: int | None = None


LOSE_REQUEST = "lose request"
LOSE_RESPONSE = "lose response"
Fault = Refuse | str | None


class Partition:
    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0
        self.sequences: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}

    def append(self, records: Any) -> tuple[ErrorCode, int]:
        """Return the error code and base offset. As in Kafka, an unknown producer id may begin with
        any sequence, a new epoch with 0 only."""
        batch = bytearray(records)
        (header,) = validate(batch, max_batch_bytes=1_000_000)
        if header.base_sequence != NO_SEQUENCE:
            epoch, recent = self.sequences.get(
                header.producer_id, (header.producer_epoch, deque(maxlen=5))
            )
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                if header.base_sequence:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                recent = deque(maxlen=5)
            for first, last, offset in recent:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
            if recent and header.base_sequence != recent[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            recent.append((header.base_sequence, header.last_sequence, self.end))
            self.sequences[header.producer_id] = header.producer_epoch, recent
        patch(batch, 0, self.end, 0)
        base, self.end = self.end, self.end + header.record_count
        self.data += batch
        return ErrorCode.NONE, base

    def records(self) -> list[Record]:
        return list(read_records(self.data))


def _no_transactions(_version: int, _index: int, _records: Any) -> ErrorCode:
    return ErrorCode.INVALID_TXN_STATE


class ScriptedBroker:
    def __init__(self, host: str = "b", port: int = PORT, partitions: int = 1) -> None:
        self.host, self.port = host, port
        self.node_id = 1
        self.leaders = [1] * partitions
        self.brokers = {1: self}
        self.partitions = [Partition() for _ in range(partitions)]
        self.served = dict(SERVED)
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[int, int, object]] = []
        self.aborted: tuple[FetchResponse.Response.Partition.AbortedTransaction, ...] = ()
        self.producer_ids = 0
        self.greeting = b""
        self.silent = False
        # As silent, and ApiVersions is not answered either.
        self.frozen = False
        self.most_in_flight = 0
        # Returns why a batch of a transaction is not written, or NONE.
        self.transactional_refusal: Callable[[int, int, Any], ErrorCode] = _no_transactions

    def add_broker(self, host: str) -> ScriptedBroker:
        """Add a second broker with the same partitions, of which it leads none."""
        other = ScriptedBroker(host)
        self.brokers[2] = other
        other.node_id, other.leaders, other.partitions, other.brokers = (
            2,
            self.leaders,
            self.partitions,
            self.brokers,
        )
        return other

    async def listen(self, world: World) -> int:
        return (await world.network.listen(lambda: _Peer(self), "", self.port)).port

    def handle(self, version: int, request: object) -> object:
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        if isinstance(request, ProduceRequest):
            return self._produce(request, version)
        if isinstance(request, FetchRequest):
            return self._fetch(request)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        if isinstance(request, InitProducerIdRequest):
            self.producer_ids += 1
            return InitProducerIdResponse(producer_id=self.producer_ids * 1000, producer_epoch=0)
        raise AssertionError(f"unexpected: {request} v{version}")

    def versions(self, version: int) -> ApiVersionsResponse:
        keys = tuple(
            ApiVersionsResponse.ApiKey(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.served.items()
        )
        unknown = version > self.served[18][1]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION if unknown else 0, api_keys=keys
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        part = MetadataResponse.Topic.Partition
        parts = tuple(
            part(partition_index=index, leader_id=leader, replica_nodes=(1,), isr_nodes=(1,))
            for index, leader in enumerate(self.leaders)
        )
        names = [TOPIC] if request.topics is None else [topic.name for topic in request.topics]
        topics = tuple(
            MetadataResponse.Topic(name=name, topic_id=TOPIC_ID, partitions=parts)
            if name == TOPIC
            else MetadataResponse.Topic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
        )
        brokers = tuple(
            MetadataResponse.Broker(node_id=node_id, host=broker.host, port=broker.port)
            for node_id, broker in self.brokers.items()
        )
        return MetadataResponse(
            brokers=brokers, cluster_id="scripted", controller_id=1, topics=topics
        )

    def _produce(self, request: ProduceRequest, version: int) -> object:
        fault = self.faults.popleft() if self.faults else None
        if fault == LOSE_REQUEST:
            return LOSE_REQUEST
        refuse = fault if isinstance(fault, Refuse) else None
        responses = tuple(
            ProduceResponse.Response(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    self._append(request, version, part, refuse) for part in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
        return LOSE_RESPONSE if fault == LOSE_RESPONSE else ProduceResponse(responses=responses)

    def _append(
        self,
        request: ProduceRequest,
        version: int,
        part: ProduceRequest.TopicData.PartitionData,
        refuse: Refuse | None,
    ) -> ProduceResponse.Response.PartitionResponse:
        refused = ErrorCode.NONE
        if self.leaders[part.index] != self.node_id:
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif refuse is not None and refuse.partition in (None, part.index):
            refused = refuse.code
        elif request.transactional_id is not None:
            refused = self.transactional_refusal(version, part.index, part.records)
        code, base = (refused, -1) if refused else self.partitions[part.index].append(part.records)
        return ProduceResponse.Response.PartitionResponse(
            index=part.index, error_code=code, base_offset=base
        )

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        parts = []
        for fetch in topic.partitions:
            log = self.partitions[fetch.partition]
            code = ErrorCode.OFFSET_OUT_OF_RANGE if fetch.fetch_offset > log.end else ErrorCode.NONE
            if self.leaders[fetch.partition] != self.node_id:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            parts.append(
                FetchResponse.Response.Partition(
                    partition_index=fetch.partition,
                    error_code=code,
                    high_watermark=log.end,
                    aborted_transactions=self.aborted if request.isolation_level else None,
                    records=bytes(log.data) if not code and fetch.fetch_offset < log.end else b"",
                )
            )
        return FetchResponse(
            responses=(
                FetchResponse.Response(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(parts)
                ),
            )
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        parts = tuple(
            ListOffsetsResponse.Topic.Partition(
                partition_index=partition.partition_index,
                offset=self._offset(partition.partition_index, partition.timestamp),
            )
            for partition in topic.partitions
        )
        return ListOffsetsResponse(
            topics=(ListOffsetsResponse.Topic(name=topic.name, partitions=parts),)
        )

    def _offset(self, index: int, timestamp: int) -> int:
        log = self.partitions[index]
        if timestamp < 0:
            return log.end if timestamp == -1 else 0
        return next(
            (record.offset for record in log.records() if record.timestamp >= timestamp), -1
        )


class _Peer(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._data = b""
        self._in_flight = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._broker.greeting:
            self._transport.write(self._broker.greeting)
            return
        frames, consumed = split_frames(self._data + data, 100_000_000)
        # Responses are delayed, so that requests that arrive together are in flight together.
        for frame in frames:
            self._in_flight += 1
            self._broker.most_in_flight = max(self._broker.most_in_flight, self._in_flight)
            asyncio.get_running_loop().call_later(0.001, self._handle, bytes(frame))
        self._data = (self._data + data)[consumed:]

    def _handle(self, frame: bytes) -> None:
        self._in_flight -= 1
        if self._transport.is_closing() or self._broker.frozen:
            return
        header, at = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        if key == 18:
            versions = self._broker.versions(version)
            self._send(versions, 0 if versions.error_code else version, header.correlation_id)
            return
        request: object = decode(request_class(key), version, frame[at:])
        self._broker.requests.append((key, version, request))
        if self._broker.silent:
            return
        response = self._broker.handle(version, request)
        if response in (LOSE_REQUEST, LOSE_RESPONSE):
            self._transport.abort()
            return
        empty = isinstance(response, FetchResponse) and not any(
            partition.records or partition.error_code
            for partition in response.responses[0].partitions
        )
        if empty and isinstance(request, FetchRequest):
            asyncio.get_running_loop().call_later(
                request.max_wait_ms / 1000, self._send, response, version, header.correlation_id
            )
        elif not (isinstance(request, ProduceRequest) and request.acks == 0):
            self._send(response, version, header.correlation_id)

    def _send(self, response: object, version: int, correlation_id: int) -> None:
        if not self._transport.is_closing():
            parts: list[Any] = frame_response(response, version, correlation_id)
            self._transport.write(b"".join(parts))


def play(
    broker: ScriptedBroker,
    scenario: Callable[[Client], Coroutine[Any, Any, None]],
    *,
    timeout_s: float = 30.0,
    api_timeout_s: float | None = None,
) -> None:
    """Run a client and the brokers in one simulation."""

    async def main() -> None:
        for listener in broker.brokers.values():
            node = simulation.node(listener.host)
            await node.run(listen(listener, node))
        await client_node.run(run_client())

    async def listen(listener: ScriptedBroker, node: Node) -> None:
        await listener.listen(node.world)

    async def run_client() -> None:
        async with Client(
            client_node.world,
            "b:9092",
            request_timeout_s=timeout_s,
            api_timeout_s=api_timeout_s,
        ) as client:
            await scenario(client)

    simulation = Simulation(seed=1)
    client_node = simulation.node("a")
    simulation.run(main())
