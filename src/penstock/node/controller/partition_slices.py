"""Changes of many partitions by the active controller, some per turn of the event loop.

A broker that fails, stops or returns changes up to all its partitions, of which it may have
100,000. One decision on all of them would hold the event loop for seconds. `PartitionSlices`
decides on some of them at a time, on the pending image of that moment, and appends the records
without waiting for their commit. Each slice is a valid decision of its own. The decision on the
broker itself follows: it finds the partitions that are left or have changed meanwhile, and its
commit is that of all records before it.

If the active controller changes in between, the broker is in the state before the decision, and the
next one decides again. Partitions that have no leader are the exception, because the broker's own
record comes first there: `elect_leaderless` is called by every new active controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

from penstock.controller.brokers.directories import offline_memberships
from penstock.controller.brokers.fencing import (
    elect_leaderless,
    leave_isrs,
    mark_controlled_shutdown,
)
from penstock.controller.brokers.registration import is_new_incarnation, loses_eligibility
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.leader_and_isr import (
    ByTopic,
    each_partition,
    elr_memberships,
    isr_memberships,
    leaderless_partitions,
)
from penstock.limits import DECIDED_PARTITIONS_A_TURN
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest

logger = logging.getLogger(__name__)


class PartitionSlices:
    def __init__(self, quorum: Quorum, context: ControllerContext) -> None:
        self._quorum = quorum
        self._context = context

    async def leave_isrs(self, broker: BrokerImage) -> ByTopic:
        """Remove a broker that is about to be fenced from its ISRs, if it is in many. Return the
        partitions that had it in their ISRs."""
        memberships = isr_memberships(self._quorum.pending, broker.id)
        await self._leave(broker, memberships)
        return memberships

    async def leave_offline(self, broker: BrokerImage, offline: Sequence[UUID]) -> ByTopic:
        """Remove the replicas in offline log directories from their ISRs, if they are many. Return
        their partitions."""
        memberships = offline_memberships(self._quorum.pending, broker, offline)
        await self._leave(broker, memberships)
        return memberships

    async def begin_controlled_shutdown(self, broker: BrokerImage) -> tuple[int | None, ByTopic]:
        """Mark a broker that wants to shut down, and remove it from its ISRs, if it is in many.
        Return the offset of the last record, None if it is in few, and the partitions that had it
        in their ISRs.

        The mark comes first: the broker is in sync, and leaders would let it into their ISRs
        again.
        """
        memberships = isr_memberships(self._quorum.pending, broker.id)
        if _count(memberships) <= DECIDED_PARTITIONS_A_TURN:
            return None, memberships
        self._append(mark_controlled_shutdown(self._quorum.pending, broker.id))
        await self._leave(broker, memberships)
        return self._quorum.pending.offset, memberships

    async def end_incarnation(self, request: BrokerRegistrationRequest) -> None:
        """Remove a broker that registers again from its ISRs, and after an unclean shutdown from
        its ELRs, if it is in many."""
        broker_id, image = request.broker_id, self._quorum.pending
        if not is_new_incarnation(image, request):
            return
        is_unclean, before = loses_eligibility(image, request), image.brokers.get(broker_id)
        memberships = elr_memberships if is_unclean else isr_memberships

        def decide(
            image: MetadataImage, partitions: list[tuple[UUID, int]]
        ) -> ControllerResult[None] | None:
            current = image.brokers.get(broker_id)
            if (current is None) != (before is None) or (
                current is not None and before is not None and current.epoch != before.epoch
            ):
                return None
            return leave_isrs(
                image, broker_id, partitions, self._context, is_unclean_shutdown=is_unclean
            )

        await self._run(memberships(image, broker_id), decide)

    async def elect_leaderless(self) -> None:
        """Elect leaders of partitions without one, if they are many."""

        def decide(
            image: MetadataImage, partitions: list[tuple[UUID, int]]
        ) -> ControllerResult[None]:
            return elect_leaderless(image, partitions, self._context)

        await self._run(leaderless_partitions(self._quorum.pending), decide)

    async def _leave(self, broker: BrokerImage, memberships: ByTopic) -> None:
        def decide(
            image: MetadataImage, partitions: list[tuple[UUID, int]]
        ) -> ControllerResult[None] | None:
            current = image.brokers.get(broker.id)
            if current is None or current.epoch != broker.epoch or current.fenced:
                return None
            return leave_isrs(image, broker.id, partitions, self._context)

        await self._run(_led_first(self._quorum.pending, broker.id, memberships), decide)

    async def _run(
        self,
        by_topic: ByTopic,
        decide: Callable[[MetadataImage, list[tuple[UUID, int]]], ControllerResult[None] | None],
    ) -> None:
        """Decide on some partitions per turn, unless they are few, until `decide` returns None or
        this controller is not active any more."""
        if _count(by_topic) <= DECIDED_PARTITIONS_A_TURN:
            return
        partitions = each_partition(by_topic)
        while some := list(islice(partitions, DECIDED_PARTITIONS_A_TURN)):
            decision = decide(self._quorum.pending, some) if self._quorum.is_leader else None
            if decision is None:
                return
            self._append(decision)
            await asyncio.sleep(0)

    def _append(self, decision: ControllerResult[None]) -> None:
        for warning in decision.warnings:
            logger.warning("%s", warning)
        if decision.records:
            self._quorum.append_only(decision.records)


def _led_first(image: MetadataImage, broker_id: int, by_topic: ByTopic) -> ByTopic:
    """Return partitions in an order in which those that the broker leads come first: clients wait
    for their new leaders, and nobody for the broker to leave the ISRs of other leaders."""
    led: ByTopic = []
    followed: ByTopic = []
    for topic_id, indexes in by_topic:
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            states = topic.partitions
            led.append((topic_id, [each for each in indexes if states[each].leader == broker_id]))
            followed.append(
                (topic_id, [each for each in indexes if states[each].leader != broker_id])
            )
    return [*led, *followed]


def _count(by_topic: ByTopic) -> int:
    return sum(len(indexes) for _topic_id, indexes in by_topic)
