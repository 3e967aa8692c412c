"""Compare consumer groups with Apache Kafka 4, with one broker each, in one run.

Measures the time until ten members share 900 partitions, commits and heartbeats per second, and
the time until a restarted broker has loaded 100,000 committed offsets.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peer import Peer, new_peers
from bench.results import Section
from bench.side_by_side import COLUMNS, in_turn, row
from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.client.routing import Coordinators
from penstock.ids import TopicPartition
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.world import World
from penstock.world.real import run

T = TypeVar("T")

MEMBERS, PARTITIONS = 10, 900
REQUESTS, IN_FLIGHT = 20_000, 64
GROUPS, OFFSETS_EACH = 1_000, 100
ROUNDS, WARM_UPS = 3, 1
TIMEOUT_S = 120.0
WIDE, NARROW = "wide", "narrow"


def main() -> None:
    section = Section(
        "groups",
        "make bench ONLY=groups",
        f"Medians of {ROUNDS} rounds after {WARM_UPS} warm-up round, with minimum and maximum.",
    )
    section.table(*COLUMNS)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        peers = new_peers(Path(directory))
        try:
            for peer in peers.values():
                peer.start()
                create_topics(peer.bootstrap)
            for protocol in ("classic", "consumer"):
                label = f"{MEMBERS} members share {PARTITIONS} partitions, {protocol} protocol, s"
                (figures,) = in_turn(
                    peers, ROUNDS, WARM_UPS, partial(seconds_to_share, protocol=protocol)
                )
                row(section, label, "", figures, 2)
            commits, heartbeats = in_turn(
                peers, ROUNDS, WARM_UPS, lambda peer: with_client(peer, requests_per_second)
            )
            row(section, f"OffsetCommit per second, {IN_FLIGHT} in flight", "", commits)
            row(section, f"Heartbeat per second, {IN_FLIGHT} in flight", "", heartbeats)
            for peer in peers.values():
                with_client(peer, commit_many)
            (loads,) = in_turn(peers, ROUNDS, WARM_UPS, lambda peer: [seconds_to_load(peer)])
            row(
                section,
                f"restart until {GROUPS * OFFSETS_EACH:,} offsets of {GROUPS:,} groups are "
                "fetched, s",
                "seconds",
                loads,
                2,
            )
        finally:
            for peer in peers.values():
                peer.kill()
    section.save()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(WIDE, PARTITIONS, 1), NewTopic(NARROW, OFFSETS_EACH, 1)]
    ).values():
        future.result(TIMEOUT_S)


def seconds_to_share(peer: Peer, protocol: str) -> list[float]:
    """Measure from the first subscription until all partitions are assigned evenly."""
    group = f"share-{uuid4().hex[:8]}"
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "log_level": 0,
    }
    members = [Consumer(settings) for _ in range(MEMBERS)]
    began = time.perf_counter()
    for member in members:
        member.subscribe([WIDE])
    try:
        while time.perf_counter() < began + TIMEOUT_S:
            for member in members:
                member.poll(0.005)
            if [len(member.assignment()) for member in members] == [
                PARTITIONS // MEMBERS
            ] * MEMBERS:
                return [time.perf_counter() - began]
        raise SystemExit(f"{peer.bootstrap}: no stable assignment within {TIMEOUT_S:g} s")
    finally:
        for member in members:
            member.close()


def with_client(peer: Peer, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def connected(world: World) -> T:
        async with Client(world, peer.bootstrap) as client:
            return await work(client)

    return run(connected)


async def requests_per_second(client: Client) -> list[float]:
    group = f"busy-{uuid4().hex[:8]}"
    coordinators = Coordinators(client.cluster)
    member_id, generation = await coordinators.send(
        group, lambda connection: join(connection, group)
    )
    part = OffsetCommitRequest.Topic.Partition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = (OffsetCommitRequest.Topic(name=NARROW, partitions=(part,)),)
    commit = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )
    heartbeat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)

    async def measure(connection: Connection) -> list[float]:
        commits = await rate(
            lambda: connection.send(commit, OffsetCommitResponse, max_version=9), check_commit
        )
        heartbeats = await rate(
            lambda: connection.send(heartbeat, HeartbeatResponse),
            lambda response: check(response.error_code, "Heartbeat"),
        )
        return [commits, heartbeats]

    return await coordinators.send(group, measure)


def check_commit(response: OffsetCommitResponse) -> None:
    check(response.topics[0].partitions[0].error_code, "OffsetCommit")


async def rate(send: Callable[[], Awaitable[T]], check_response: Callable[[T], None]) -> float:
    """Return the requests per second, with enough in flight that neither side is idle."""
    began, remaining = time.perf_counter(), REQUESTS

    async def send_sequentially() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            check_response(await send())

    await asyncio.gather(*(send_sequentially() for _ in range(IN_FLIGHT)))
    return REQUESTS / (time.perf_counter() - began)


async def join(connection: Connection, group: str) -> tuple[str, int]:
    protocols = (JoinGroupRequest.Protocol(name="any", metadata=b""),)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="bench",
        protocols=protocols,
    )
    joined = await connection.call(request, JoinGroupResponse, max_version=3)
    check(joined.error_code, "JoinGroup")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b""),),
    )
    check((await connection.call(sync, SyncGroupResponse, max_version=3)).error_code, "SyncGroup")
    return joined.member_id, joined.generation_id


async def commit_many(client: Client) -> None:
    offsets = {
        TopicPartition(NARROW, index): OffsetAndMetadata(index) for index in range(OFFSETS_EACH)
    }
    for number in range(GROUPS):
        await client.groups.commit_offsets(f"kept-{number}", offsets)


def seconds_to_load(peer: Peer) -> float:
    peer.stop()
    began = time.perf_counter()
    peer.start()

    async def fetch_all(client: Client) -> None:
        for number in range(GROUPS):
            if len(await client.groups.fetch_offsets(f"kept-{number}")) != OFFSETS_EACH:
                raise SystemExit(f"{peer.bootstrap}: group kept-{number} lost offsets in a restart")

    with_client(peer, fetch_all)
    return time.perf_counter() - began
