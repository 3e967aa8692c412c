"""Questions to a running cluster, Penstock's or Kafka's, between measurements: who leads, who is in
sync, is everything as it was.

Nothing here is timed, so it is Penstock's own client that asks.
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
# An idle leader writes a record every 500 ms, which its followers fetch at once.
CAUGHT_UP_MS = 1_000


def ask(bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def main(world: World) -> T:
        async with Client(world, bootstrap, client_id="bench", request_timeout_s=10.0) as client:
            return await work(client)

    return run(main)


def create_topic(bootstrap: str, name: str, assignments: Sequence[Sequence[int]]) -> None:
    async def work(client: Client) -> None:
        await client.admin.create_topic(
            name, assignments=assignments, configs={"min.insync.replicas": "2"}
        )

    ask(bootstrap, work)


def quorum(bootstrap: str) -> QuorumInfo:
    async def work(client: Client) -> QuorumInfo:
        return await client.admin.describe_quorum()

    return ask(bootstrap, work)


def partitions(bootstrap: str, topic: str) -> tuple[PartitionInfo, ...]:
    async def work(client: Client) -> tuple[PartitionInfo, ...]:
        (info,) = await client.admin.describe_topics([topic])
        return info.partitions

    return ask(bootstrap, work)


def elections(bootstrap: str, topic: str) -> int:
    """How often a leader was elected, over all partitions: each election has an epoch of its
    own."""
    return sum(one.leader_epoch for one in partitions(bootstrap, topic))


def wait_healthy(bootstrap: str, brokers: int) -> None:
    """Until all brokers live, all replicas are in sync, preferred leaders lead, and every voter
    keeps up with the quorum's leader."""

    async def work(client: Client) -> None:
        async with asyncio.timeout(HEALTHY_TIMEOUT_S):
            while True:
                with suppress(KafkaError):  # a cluster in change may not answer
                    if await _is_healthy(client, brokers):
                        return
                await asyncio.sleep(0.1)

    try:
        ask(bootstrap, work)
    except TimeoutError:
        raise SystemExit(
            f"the cluster of {bootstrap} was not whole again within {HEALTHY_TIMEOUT_S:.0f} s"
        ) from None


async def _is_healthy(client: Client, brokers: int) -> bool:
    if len((await client.admin.describe_cluster()).brokers) < brokers:
        return False
    found = [one for topic in await client.admin.describe_topics() for one in topic.partitions]
    if any(len(one.isr) < len(one.replicas) for one in found):
        return False
    if any(one.leader != one.replicas[0] for one in found):
        await client.admin.elect_leaders(ElectionType.PREFERRED, None)
        return False
    quorum = await client.admin.describe_quorum()
    return all(
        quorum.leader.last_caught_up_ms - one.last_caught_up_ms < CAUGHT_UP_MS
        for one in quorum.voters
    )
