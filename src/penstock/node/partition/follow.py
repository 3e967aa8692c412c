"""One partition on this node, as it follows a leader: what it fetched, and what of its log must go.

Owns the state that the controller last decided on, and the cutting of the log, during which a
partition neither leads nor follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from penstock.ids import Buffer
from penstock.log.log import Log
from penstock.metadata.image import NO_LEADER, PartitionState
from penstock.node.partition.env import PartitionEnv
from penstock.node.partition.reads import ReadablePartition
from penstock.replica.follower import DivergingEpoch, follower_watermark, truncation_point

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)


class FollowingPartition(ReadablePartition):
    """What a partition does while it does not lead."""

    def __init__(self, log: Log, env: PartitionEnv, high_watermark: int) -> None:
        super().__init__(log, env.world, high_watermark)
        self.state: PartitionState | None = None
        self.leader_epoch = -1
        self._env = env
        self._now = env.world.clock.monotonic
        # While its log is being cut.
        self._cut_done: asyncio.Event | None = None

    @property
    def leader_id(self) -> int:
        return NO_LEADER if self.state is None else self.state.leader

    @property
    def is_ready_to_follow(self) -> bool:
        """Not while it is being cut, nor while something is not on the disk that a fetch would
        acknowledge."""
        return self._cut_done is None and not self._must_sync()

    async def be_ready_to_follow(self) -> None:
        while self._cut_done is not None:
            await self._cut_done.wait()
        if self._must_sync():
            await self._log.flushing.all()

    def append_fetched(self, records: Buffer, high_watermark: int, log_start_offset: int) -> bool:
        """What the leader sent, and how far it is. Whether it must be synced before it is
        acknowledged."""
        log = self._log
        if records:
            log.append_as_follower(records)
        told = follower_watermark(self.high_watermark, high_watermark, log.end_offset)
        if told > self.high_watermark:
            self._commit(told)
        start = min(log_start_offset, self.high_watermark)
        if start > log.start_offset and log.advance_start(start):
            self._notice_all()
        return self._must_sync()

    async def sync(self) -> None:
        await self._log.flushing.all()

    async def truncate(self, leader_epoch: int, diverging: DivergingEpoch) -> None:
        """Drops what the leader of this epoch does not have. A later one may have more, or other
        records."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            return
        own_epoch, own_end = self.end_offset_for_epoch(diverging.epoch)
        offset = truncation_point(diverging, own_epoch, own_end, self._log.end_offset)
        if offset < self._log.end_offset:
            await self._cut(self._env.store.truncate({self.topic_partition: offset}), offset)
        else:
            self._log.epochs.truncate_from_end(offset)

    async def restart(self, leader_epoch: int, offset: int, records: Buffer = b"") -> None:
        """Begins anew at an offset: the leader has nothing of what is here, nor what comes after
        it. The records are the first ones, where the leader's log begins within a batch."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            return
        await self._cut(self._env.store.restart(self.topic_partition, offset), offset)
        if records and not self.is_leader and leader_epoch == self.leader_epoch:
            self._log.append_as_follower(records)

    async def _cut(self, cut: Coroutine[Any, Any, None], offset: int) -> None:
        log = self._log
        logger.info(
            "%s: truncated from %d to %d, as its leader of epoch %d says",
            log.partition,
            log.end_offset,
            offset,
            self.leader_epoch,
        )
        if offset < self.high_watermark:
            lost = (
                f"{self.high_watermark - offset} committed offsets, from {offset} to "
                f"{self.high_watermark}"
            )
            logger.warning(
                "%s: the leader of epoch %d does not have %s",
                log.partition,
                self.leader_epoch,
                lost,
            )
        self._cut_done = asyncio.Event()
        try:
            await cut
        finally:
            self._cut_done.set()
            self._cut_done = None
            log.epochs.truncate_from_end(log.end_offset)
            log.producers.advance(self.high_watermark)
            self.high_watermark = max(min(self.high_watermark, log.end_offset), log.start_offset)
        if self.state is not None:
            self.become(self.state)

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    def become(self, state: PartitionState) -> None:
        """As the controller decided."""
        raise NotImplementedError

    def _commit(self, offset: int) -> None:
        """The watermark moves."""
        self.high_watermark = offset
        self._log.producers.advance(offset)
        self._notice_all()

    def _must_sync(self) -> bool:
        """flush.messages: an end counts only once it is synced."""
        return (
            self._log.end_offset - self._log.flushing.recovery_point
            >= self._log.config.flush_messages
        )
