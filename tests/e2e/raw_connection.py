"""A socket that sends any bytes to a broker and reads framed responses."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from penstock.protocol.apis import api_of
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse

TIMEOUT_S = 30.0
R = TypeVar("R")


class RawConnection:
    def __init__(self, bootstrap: str, *, receive_buffer: int = 0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, request: object, version: int, response: type[R]) -> R:
        self.send(encoded(request, version))
        return self.receive(version, response)

    def receive(self, version: int, response: type[R]) -> R:
        body = memoryview(self.frame())
        _header, position = decode_response_header(api_of(response).key, version, body)
        return decode(response, version, body[position:])

    def frame(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def is_closed_by_broker(self) -> bool:
        """Return True if the broker closes the connection; False if it responds or the timeout
        passes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError(
                    f"the broker closed the connection after {len(data)} of {size} bytes"
                )
            data += more
        return bytes(data)


def encoded(request: object, version: int) -> bytes:
    return b"".join(
        bytes(part) if isinstance(part, bytes | bytearray | memoryview) else b""
        for part in frame_request(request, version, 1, "raw")
    )


def create_topic(connection: RawConnection, name: str, partitions: int = 1, factor: int = 1) -> int:
    """Create a topic and return the error code."""
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=factor
    )
    response = connection.request(
        CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 5, CreateTopicsResponse
    )
    return response.topics[0].error_code


def produce(
    connection: RawConnection, topic: str, records: bytes, *, partition: int = 0
) -> ProduceResponse.Response.PartitionResponse:
    data = ProduceRequest.TopicData(
        name=topic,
        partition_data=(ProduceRequest.TopicData.PartitionData(index=partition, records=records),),
    )
    response = connection.request(
        ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,)), 9, ProduceResponse
    )
    return response.responses[0].partition_responses[0]


def metadata(connection: RawConnection, topic: str | None = None) -> MetadataResponse:
    """Request metadata of one topic, which may create it, or of the brokers only."""
    topics = () if topic is None else (MetadataRequest.Topic(name=topic),)
    return connection.request(MetadataRequest(topics=topics), 9, MetadataResponse)
