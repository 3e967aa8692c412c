"""Logs which partitions a broker left when the active controller fenced it, its log directories
failed, it shut down or was unregistered: one line, with the causes."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import partial
from itertools import islice

from penstock.controller.decision import ControllerContext
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.controller.partitions.leader_and_isr import ByTopic, each_partition
from penstock.health.departures import Departures
from penstock.health.observations import Broker, Event, EventKind, LogDir, Observation, Partition
from penstock.ids import TopicPartition
from penstock.limits import DECIDED_PARTITIONS_A_TURN
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState
from penstock.world import Clock

logger = logging.getLogger(__name__)


class DepartureLog:
    def __init__(self, node_id: int, clock: Clock, context: ControllerContext) -> None:
        self._node_id = node_id
        self._clock = clock
        self._context = context

    async def fenced(
        self, image: MetadataImage, broker_id: int, reason: str, left: ByTopic
    ) -> None:
        """`image` is that after the decision, `left` are the partitions whose ISR had the
        broker."""
        event = Event(self._clock.now_ms(), self._node_id, EventKind.FENCED, str(broker_id), reason)
        await self._log(image, Broker(broker_id, fenced=True), (event,), left)

    async def shut_down(self, image: MetadataImage, broker_id: int, left: ByTopic) -> None:
        await self._log(image, Broker(broker_id, shutting_down=True), (), left)

    async def unregistered(self, image: MetadataImage, broker_id: int, left: ByTopic) -> None:
        now_ms = self._clock.now_ms()
        words = "UnregisterBroker, penstock brokers remove"
        event = Event(now_ms, self._node_id, EventKind.UNREGISTERED, str(broker_id), words)
        await self._log(image, Broker(broker_id), (event,), left)

    async def directories_failed(self, image: MetadataImage, broker_id: int, left: ByTopic) -> None:
        directory = LogDir("of these replicas", "the broker reported it, and its log says why")
        await self._log(image, Broker(broker_id, log_dirs=(directory,)), (), left)

    async def _log(
        self, image: MetadataImage, broker: Broker, events: tuple[Event, ...], left: ByTopic
    ) -> None:
        departures = Departures(broker.id)
        configs = ElectionConfigs(image, self._context)
        partitions = each_partition(left)
        while some := list(islice(partitions, DECIDED_PARTITIONS_A_TURN)):
            for topic_id, index in some:
                topic = image.topic_by_id(topic_id)
                state = None if topic is None else topic.partitions.get(index)
                # Without ELR the last in-sync replica stays in the ISR.
                has_left = state is not None and (
                    broker.id not in state.isr or state.leader == NO_LEADER
                )
                if topic is not None and state is not None and has_left:
                    name = TopicPartition(topic.name, index)
                    departures.add(
                        name,
                        state.leader,
                        len(state.isr),
                        configs.of(topic).min_isr,
                        partial(_describe, name, state),
                    )
            await asyncio.sleep(0)
        if departures:
            now_ms = self._clock.now_ms()
            zone = datetime.fromtimestamp(now_ms / 1000).astimezone().tzinfo
            assert zone is not None
            others = {
                each.id: Broker(each.id, fenced=each.fenced) for each in image.brokers.values()
            }
            brokers = {**others, broker.id: broker} if broker.id in others else others
            seen = Observation(now_ms, zone, brokers=brokers, events=events)
            line = departures.line(seen)
            cause = line.partition(": ")[2]
            is_expected = broker.shutting_down and not departures.has_offline
            level = logging.INFO if is_expected else logging.WARNING
            logger.log(level, "%s", line, extra={"broker": broker.id, "cause": cause})


def _describe(name: TopicPartition, state: PartitionState) -> Partition:
    return Partition(name, state.leader, state.replicas, state.isr, state.eligible_leader_replicas)
