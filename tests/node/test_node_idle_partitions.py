"""An idle partition is not looked at by periodic work, whether this node leads or follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.log.names import HIGH_WATERMARKS
from penstock.metadata.image import BrokerImage, PartitionState
from penstock.node.delayed import ActionQueue
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.replica.leader import IsrProposal
from penstock.world import World
from penstock.world.sim import Simulation
from tests.log.making import PARTITION, SMALL, TOPIC_ID, batch, open_store

LAG_S = 30.0
STATE = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=7)
EPOCH = 5


class Led:
    """A partition that this broker leads, and broker 2 follows."""

    def __init__(self, partition: Partition, env: PartitionEnv) -> None:
        self.partition = partition
        self.marks = env.marks
        self.proposals: list[IsrProposal] = []
        self.replicas = object.__new__(Replicas)
        parts: Any = self.replicas
        parts._env = env
        parts.partitions = {PARTITION: partition}
        parts.store = SimpleNamespace(
            offsets=SimpleNamespace(save_high_watermarks=self._saved), due=env.store.due
        )
        parts._saved_watermarks = {}
        self.saved = 0

    async def _saved(self, _watermarks: object) -> None:
        self.saved += 1

    def follower_fetches(self, offset: int) -> None:
        assert self.partition.follower_fetched(2, EPOCH, offset, -1, 0) is None

    def review(self) -> int:
        """Run the periodic review; return how many partitions it looks at."""
        count = len(self.marks.reviews)
        for _step in self.replicas.review_marked():
            pass
        return count


def with_leader(test: Callable[[Led], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)
    node = simulation.node("n1")

    async def main() -> None:
        await test(await led(node.world))

    simulation.run(node.run(main()))


async def led(world: World) -> Led:
    brokers = {
        number: BrokerImage(number, EPOCH, UUID(int=number), fenced=False) for number in (1, 2)
    }
    proposals: list[IsrProposal] = []
    store = await open_store(world, "/d")
    env = PartitionEnv(
        1,
        world,
        store,
        asyncio.create_task,
        lambda: brokers,
        lambda _role, proposal: proposals.append(proposal),
        lag_max_s=LAG_S,
        actions=ActionQueue(world.clock),
    )
    partition = Partition(store.create(PARTITION, TOPIC_ID, SMALL), env)
    partition.become(STATE)
    found = Led(partition, env)
    found.proposals = proposals
    return found


def test_a_leader_whose_followers_have_everything_is_not_reviewed() -> None:
    async def test(led: Led) -> None:
        led.follower_fetches(0)
        assert led.review() == 1, "a new leader is reviewed once"
        await asyncio.sleep(3 * LAG_S)
        assert led.review() == 0
        led.partition.append(batch("a"))
        led.follower_fetches(1)
        assert led.review() == 1, "an append may leave a follower behind"
        await asyncio.sleep(3 * LAG_S)
        assert led.review() == 0
        assert led.proposals == []

    with_leader(test)


def test_a_follower_that_falls_behind_is_found_by_the_periodic_review() -> None:
    async def test(led: Led) -> None:
        led.follower_fetches(0)
        led.review()
        led.partition.append(batch("a"))
        for _round in range(2):
            await asyncio.sleep(LAG_S / 2 - 1)
            assert led.review() == 1
        assert led.proposals == []
        await asyncio.sleep(LAG_S / 2)
        assert led.review() == 1
        (proposal,) = led.proposals
        assert [member.broker_id for member in proposal.isr] == [1]

    with_leader(test)


def test_a_follower_that_never_fetched_from_a_new_leader_is_found() -> None:
    async def test(led: Led) -> None:
        await asyncio.sleep(LAG_S + 1)
        led.review()
        (proposal,) = led.proposals
        assert [member.broker_id for member in proposal.isr] == [1]

    with_leader(test)


def test_a_partition_that_is_no_longer_led_is_not_reviewed() -> None:
    async def test(led: Led) -> None:
        led.partition.append(batch("a"))
        led.partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=4, partition_epoch=8)
        )
        assert led.review() == 0
        led.partition.become(
            PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=9)
        )
        assert led.review() == 1
        led.partition.abandon()
        assert led.review() == 0

    with_leader(test)


def test_high_watermarks_are_saved_when_one_has_changed() -> None:
    async def test(led: Led) -> None:
        save = led.replicas.save_changed_high_watermarks
        await save()
        led.saved = 0
        await save()
        assert led.saved == 0
        led.partition.append(batch("a"))
        await save()
        assert led.saved == 0, "the follower does not have it"
        led.follower_fetches(1)
        await save()
        await save()
        assert led.saved == 1
        led.replicas.store.due.changed_checkpoints.add(HIGH_WATERMARKS)
        await save()
        assert led.saved == 2, "a log moved to another directory, whose checkpoint lacks it"

    with_leader(test)
