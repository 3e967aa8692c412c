"""Count the Python calls and the files of this package that one request touches.

`python -m bench.paths` starts brokers in this process, sends each request some dozen times and
counts the calls of functions in `penstock` between the request and its response. It prints the
smallest count of the rounds: heartbeats and timers that fall into a round add to it. With
PYTHONPATH set to another checkout's `src` it counts that one.

"a follower's fetch" is everything that one record with acks=all costs both brokers of a partition
with two replicas, less the same Produce without a follower: the leader completes and answers the
delayed fetch, the follower appends and fetches again, the leader advances the high watermark.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock.protocol.apis import api_of
from penstock.protocol.codec import decode
from penstock.protocol.framing import frame_request
from penstock.protocol.headers import decode_response_header
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.records.build import build_batch

ROUNDS = 30
SETTLE_S = 0.2
PACKAGE = str(Path(penstock.__file__).parent)
RECORDS = build_batch([(b"key", b"value", (), 1_700_000_000_000)])


class Counter:
    """Counts calls on the brokers' thread while it is active."""

    def __init__(self) -> None:
        self.active = False
        self.calls = 0
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.active and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls += 1
            self.files.add(frame.f_code.co_filename)

    def smallest(self, act: Callable[[], object], *, settle: bool = False) -> tuple[int, set[str]]:
        counts = []
        for _ in range(ROUNDS):
            time.sleep(SETTLE_S if settle else 0.01)
            self.calls, self.files = 0, set()
            self.active = True
            act()
            if settle:
                time.sleep(SETTLE_S)
            self.active = False
            counts.append((self.calls, self.files))
        return min(counts, key=lambda count: count[0])


class Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def send(self, request: object, version: int, response: type[Any]) -> Any:
        parts = frame_request(request, version, 1, "paths")
        self._socket.sendall(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
        body = memoryview(self._read(struct.unpack(">i", self._read(4))[0]))
        _header, position = decode_response_header(api_of(response).key, version, body)
        return decode(response, version, body[position:])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._socket.recv(size - len(data))
        return data


def create_topic(connection: Connection, name: str, factor: int) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=factor)
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
    response = connection.send(request, 5, CreateTopicsResponse)
    assert not response.topics[0].error_code, response


def produce(connection: Connection, topic: str) -> None:
    partition = ProduceRequest.TopicData.PartitionData(index=0, records=bytes(RECORDS))
    data = ProduceRequest.TopicData(name=topic, partition_data=(partition,))
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
    response = connection.send(request, 9, ProduceResponse)
    assert not response.responses[0].partition_responses[0].error_code, response


def fetch(connection: Connection, topic: str) -> None:
    partition = FetchRequest.Topic.Partition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20
    )
    data = FetchRequest.Topic(topic=topic, partitions=(partition,))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(data,))
    response = connection.send(request, 11, FetchResponse)
    assert response.responses[0].partitions[0].records, response


def join_group(connection: Connection, name: str) -> None:
    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"metadata")
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    response = connection.send(request, 2, JoinGroupResponse)
    assert not response.error_code, response


def leader_of(connection: Connection, topic: str) -> str:
    request = MetadataRequest(topics=(MetadataRequest.Topic(name=topic),))
    response = connection.send(request, 9, MetadataResponse)
    leader = response.topics[0].partitions[0].leader_id
    return next(f"{node.host}:{node.port}" for node in response.brokers if node.node_id == leader)


def one_broker(counter: Counter) -> dict[str, tuple[int, set[str]]]:
    with penstock.Cluster() as cluster:
        connection = Connection(cluster.bootstrap_servers)
        create_topic(connection, "topic", 1)
        coordinator = FindCoordinatorRequest(key="group")
        while connection.send(coordinator, 2, FindCoordinatorResponse).error_code:
            time.sleep(0.05)
        names = iter(range(10_000))
        produce(connection, "topic")
        return {
            "Produce": counter.smallest(lambda: produce(connection, "topic")),
            "Fetch": counter.smallest(lambda: fetch(connection, "topic")),
            "JoinGroup": counter.smallest(lambda: join_group(connection, f"group-{next(names)}")),
            "CreateTopics": counter.smallest(
                lambda: create_topic(connection, f"topic-{next(names)}", 1)
            ),
        }


def two_brokers(counter: Counter, alone: tuple[int, set[str]]) -> tuple[int, set[str]]:
    with penstock.Cluster(brokers=2) as cluster:
        connection = Connection(cluster.bootstrap_servers.split(",")[0])
        create_topic(connection, "topic", 2)
        leader = Connection(leader_of(connection, "topic"))
        produce(leader, "topic")
        both = counter.smallest(lambda: produce(leader, "topic"), settle=True)
        return both[0] - alone[0], both[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="also print the files")
    arguments = parser.parse_args()
    counter = Counter()
    threading.setprofile(counter)
    counts = one_broker(counter)
    counts["a follower's fetch"] = two_brokers(counter, counts["Produce"])
    threading.setprofile(None)
    print(f"{'request':20} {'calls':>6} {'files':>6}   (Python {sys.version.split()[0]})")
    for name, (calls, files) in counts.items():
        print(f"{name:20} {calls:6} {len(files):6}")
        if arguments.files:
            print("".join(f"    {file[len(PACKAGE) + 1 :]}\n" for file in sorted(files)), end="")


if __name__ == "__main__":
    main()
