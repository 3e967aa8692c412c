"""Samples of the metadata quorum and of the controller.

The active controller walks over the partitions of the cluster, some per turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.limits import SCRAPED_PARTITIONS_PER_STEP
from penstock.metadata.image import NO_LEADER, TopicImage
from penstock.metrics.catalogue import cluster as names
from penstock.metrics.samples import Samples
from penstock.metrics.turn import Turn
from penstock.node.controller.controller import NodeController
from penstock.node.quorum.quorum import Quorum
from penstock.world import Clock


class _Counts(NamedTuple):
    """Partitions of the cluster."""

    partitions: int
    offline: int
    imbalanced: int


class QuorumSource:
    def __init__(self, clock: Clock, quorum: Quorum) -> None:
        self._clock = clock
        self._quorum = quorum

    async def __call__(self, samples: Samples, _turn: Turn) -> None:
        quorum, add = self._quorum, samples.add
        leader, end = quorum.leader_id, quorum.log_end_offset
        add(names.QUORUM_LEADER, -1 if leader is None else leader)
        add(names.QUORUM_EPOCH, quorum.epoch)
        add(names.QUORUM_HIGH_WATERMARK, quorum.high_watermark)
        add(names.QUORUM_END, end)
        add(names.QUORUM_VOTERS, len(quorum.voter_set.voters))
        add(names.METADATA_APPLIED, quorum.applied_offset)
        # The image has the records before the high watermark.
        add(names.METADATA_LAG, max(0, quorum.high_watermark - 1 - quorum.applied_offset))
        now = self._clock.monotonic()
        for voter, end_offset, fetched_at in quorum.voter_progress:
            add(names.QUORUM_LAG, end - max(end_offset, 0), str(voter))
            if fetched_at <= now and fetched_at > 0:
                add(names.QUORUM_VOTER_SILENCE, now - fetched_at, str(voter))


class ControllerSource:
    def __init__(self, quorum: Quorum, controller: NodeController) -> None:
        self._quorum = quorum
        self._controller = controller
        # Images are immutable: topics that have not changed since the last scrape are not counted
        # again.
        self._counted: Mapping[str, TopicImage] = {}
        self._counts = _Counts(0, 0, 0)

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        add, is_active = samples.add, self._controller.is_active
        add(names.ACTIVE_CONTROLLER, int(is_active))
        add(names.ELECTIONS, self._controller.elections.elections)
        add(names.UNCLEAN_ELECTIONS, self._controller.elections.unclean)
        if not is_active:
            return
        image = self._quorum.image
        if image.topics is not self._counted:
            self._counts = await _count(image.topics, turn)
            self._counted = image.topics
        counts = self._counts
        add(names.TOPICS, len(image.topics))
        add(names.CLUSTER_PARTITIONS, counts.partitions)
        add(names.OFFLINE_PARTITIONS, counts.offline)
        add(names.PREFERRED_IMBALANCE, counts.imbalanced)
        fenced = sum(broker.fenced for broker in image.brokers.values())
        add(names.BROKERS, len(image.brokers) - fenced, "active")
        add(names.BROKERS, fenced, "fenced")


async def _count(topics: Mapping[str, TopicImage], turn: Turn) -> _Counts:
    partitions = offline = imbalanced = 0
    for topic in topics.values():
        for state in topic.partitions.values():
            if state.leader == NO_LEADER:
                offline += 1
            if state.replicas and state.leader != state.replicas[0]:
                imbalanced += 1
            partitions += 1
            if partitions % SCRAPED_PARTITIONS_PER_STEP == 0:
                await turn.pause()
    return _Counts(partitions, offline, imbalanced)
