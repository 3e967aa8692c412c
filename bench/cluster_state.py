"""Query a running cluster, Penstock's or Kafka's, between measurements.

Uses Penstock's client, because nothing here is timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from penstock.client.admin.admin_client import ElectionType
from penstock.client.admin.quorum import QuorumInfo
from penstock.client.client import Client
from penstock.client.metadata import PartitionInfo
from penstock.errors import KafkaError
from penstock.world import World
from penstock.world.real import run

T = TypeVar("T")
HEALTHY_TIMEOUT_S = 120.0
# An idle quorum leader writes a record every 500 ms, which its followers fetch immediately.
CAUGHT_UP_MS = 1_000


def with_client(bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def main(world: World) -> T:
        async with Client(world, bootstrap, client_id="bench", request_timeout_s=10.0) as client:
            return await work(client)

    return run(main)


def create_topic(bootstrap: str, name: str, assignments: Sequence[Sequence[int]]) -> None:
    async def work(client: Client) -> None:
        await client.admin.create_topic(
            name, assignments=assignments, configs={"min.insync.replicas": "2"}
        )

    with_client(bootstrap, work)


def quorum(bootstrap: str) -> QuorumInfo:
    async def work(client: Client) -> QuorumInfo:
        return await client.admin.describe_quorum()

    return with_client(bootstrap, work)


def partitions(bootstrap: str, topic: str) -> tuple[PartitionInfo, ...]:
    async def work(client: Client) -> tuple[PartitionInfo, ...]:
        (info,) = await client.admin.describe_topics([topic])
        return info.partitions

    return with_client(bootstrap, work)


def elections(bootstrap: str, topic: str) -> int:
    """Return the number of leader elections of all partitions; each increments a leader epoch."""
    return sum(partition.leader_epoch for partition in partitions(bootstrap, topic))


def wait_healthy(bootstrap: str, brokers: int) -> None:
    """Wait until all brokers are alive, all replicas in sync, preferred leaders lead, and every
    voter has caught up with the quorum's leader."""

    async def work(client: Client) -> None:
        async with asyncio.timeout(HEALTHY_TIMEOUT_S):
            while True:
                with suppress(KafkaError):  # Brokers may not respond during a failover.
                    if await _is_healthy(client, brokers):
                        return
                await asyncio.sleep(0.1)

    try:
        with_client(bootstrap, work)
    except TimeoutError:
        raise SystemExit(
            f"the cluster of {bootstrap} did not recover within {HEALTHY_TIMEOUT_S:.0f} s"
        ) from None


async def _is_healthy(client: Client, brokers: int) -> bool:
    if len((await client.admin.describe_cluster()).brokers) < brokers:
        return False
    infos = [info for topic in await client.admin.describe_topics() for info in topic.partitions]
    if any(len(info.isr) < len(info.replicas) for info in infos):
        return False
    if any(info.leader != info.replicas[0] for info in infos):
        await client.admin.elect_leaders(ElectionType.PREFERRED, None)
        return False
    quorum = await client.admin.describe_quorum()
    return all(
        quorum.leader.last_caught_up_ms - voter.last_caught_up_ms < CAUGHT_UP_MS
        for voter in quorum.voters
    )
