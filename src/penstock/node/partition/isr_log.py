"""Logs changes of in-sync replicas: a line per broker and change, with the causes that the leader
knows. If a broker fails, it may leave those of 100,000 partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import isinf
from typing import TYPE_CHECKING

from penstock.health.departures import Departures
from penstock.health.observations import Broker, Observation, Replica
from penstock.health.observations import Partition as SeenPartition
from penstock.health.wording import NAMED, listed
from penstock.ids import TopicPartition
from penstock.metadata.image import BrokerImage
from penstock.world import Clock

if TYPE_CHECKING:
    from penstock.node.partition.leader import LeaderRole

logger = logging.getLogger(__name__)

# A change of many partitions takes several requests. It is logged when it is complete, or after
# this time.
LOG_EVERY_S = 5.0


class IsrLog:
    """`fetched_at` is when each broker last fetched any partition from this one, on the monotonic
    clock."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        brokers: Callable[[], Mapping[int, BrokerImage]],
        fetched_at: Mapping[int, float],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._brokers = brokers
        self._fetched_at = fetched_at
        self._left: dict[int, Departures] = {}
        # By broker: the number of partitions, and the names of the first ones.
        self._joined: dict[int, tuple[int, list[TopicPartition]]] = {}
        # When the first change was noted that is not logged.
        self._noted_at = 0.0

    def changed(self, role: LeaderRole, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """The controller accepted other in-sync replicas."""
        name, leader = role.partition.topic_partition, role.leader
        logger.debug("%s: in-sync replicas are %s", name, after)
        if not self._left and not self._joined:
            self._noted_at = self._clock.monotonic()
        for broker in before:
            if broker not in after and broker in leader.followers:
                self._left.setdefault(broker, Departures(broker)).add(
                    name,
                    self._node_id,
                    len(after),
                    leader.min_insync,
                    partial(self._describe, role, after),
                )
        for broker in after:
            if broker not in before:
                count, names = self._joined.get(broker, (0, []))
                if count < NAMED:
                    names.append(name)
                self._joined[broker] = count + 1, names

    def write(self, *, is_complete: bool) -> None:
        """Log the changes, unless more follow soon."""
        if not is_complete and self._clock.monotonic() - self._noted_at < LOG_EVERY_S:
            return
        left, self._left = self._left, {}
        joined, self._joined = self._joined, {}
        brokers = {
            each.id: Broker(each.id, fenced=each.fenced) for each in self._brokers().values()
        }
        for broker_id, departures in left.items():
            seen = Observation(self._clock.now_ms(), brokers=brokers)
            line = departures.line(seen)
            cause = line.partition(": ")[2]
            logger.warning("%s", line, extra={"broker": broker_id, "cause": cause})
        for broker_id, (count, names) in joined.items():
            logger.info(
                "broker %d joined the in-sync replicas of %s",
                broker_id,
                listed(names, more=count - len(names)),
                extra={"broker": broker_id},
            )

    def _describe(self, role: LeaderRole, isr: tuple[int, ...]) -> SeenPartition:
        leader = role.leader
        progress = {
            broker: Replica(
                last_fetch_ms=self._wall_ms(leader.waits_since(broker)),
                leader_fetch_ms=self._wall_ms(self._fetched_at.get(broker)),
                lag=leader.end_offset - follower.end_offset if follower.end_offset >= 0 else None,
            )
            for broker, follower in leader.followers.items()
            if broker not in isr
        }
        name = role.partition.topic_partition
        return SeenPartition(name, self._node_id, leader.replicas, isr, progress=progress)

    def _wall_ms(self, at: float | None) -> int | None:
        if at is None or isinf(at):
            return None
        return self._clock.now_ms() - round((self._clock.monotonic() - at) * 1000)
