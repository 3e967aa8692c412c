"""A partition's role while this node does not lead it: appends what the leader sent, truncates what
the leader does not have.

While its log is being truncated a partition neither fetches nor leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from penstock.ids import Buffer
from penstock.replica.follower import DivergingEpoch, follower_watermark, truncation_point

if TYPE_CHECKING:
    from penstock.node.partition.partition import Partition

logger = logging.getLogger(__name__)


class FollowerRole:
    """Lasts until this node leads, over all leader epochs in between. A partition without a known
    leader has this role too."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._log = partition.log
        self._store = partition.env.store
        self._truncation_done: asyncio.Event | None = None

    @property
    def is_truncating(self) -> bool:
        return self._truncation_done is not None

    @property
    def is_ready(self) -> bool:
        """Return True if the next fetch may be sent. A fetch acknowledges everything before its
        offset, so with flush.messages the log must be synced first."""
        return self._truncation_done is None and not self.partition.must_sync()

    async def wait_ready(self) -> None:
        while self._truncation_done is not None:
            await self._truncation_done.wait()
        if self.partition.must_sync():
            await self._log.flushing.all()

    def append_fetched(self, records: Buffer, high_watermark: int, log_start_offset: int) -> bool:
        """Append a leader's records and adopt its high watermark and log start. Return True if the
        log must be synced before the next fetch."""
        partition, log = self.partition, self._log
        if records:
            log.append_as_follower(records)
            partition.traffic.replication_bytes_in += len(records)
        advanced = follower_watermark(partition.high_watermark, high_watermark, log.end_offset)
        if advanced > partition.high_watermark:
            partition.advance_high_watermark(advanced)
        start = min(log_start_offset, partition.high_watermark)
        if start > log.start_offset and log.advance_start(start):
            partition.notify_all()
        return partition.must_sync()

    async def truncate(self, leader_epoch: int, diverging: DivergingEpoch) -> None:
        """Remove the records that the leader of this epoch does not have. A request of an earlier
        epoch is ignored: the current leader may have these records."""
        if not self._follows(leader_epoch):
            return
        partition, log = self.partition, self._log
        own_epoch, own_end = partition.end_offset_for_epoch(diverging.epoch)
        offset = truncation_point(diverging, own_epoch, own_end, log.end_offset)
        if offset < log.end_offset:
            await self._truncate_log(
                self._store.truncate({partition.topic_partition: offset}), offset
            )
        else:
            log.epochs.truncate_from_end(offset)

    async def restart(self, leader_epoch: int, offset: int, records: Buffer) -> None:
        """Remove all records and start again at an offset: the leader's log does not overlap with
        this one. `records` are the first ones if the leader's log starts within a batch."""
        if not self._follows(leader_epoch):
            return
        await self._truncate_log(
            self._store.restart(self.partition.topic_partition, offset), offset
        )
        if records and self._follows(leader_epoch):
            self._log.append_as_follower(records)

    def _follows(self, leader_epoch: int) -> bool:
        return self.partition.role is self and leader_epoch == self.partition.leader_epoch

    async def _truncate_log(self, truncation: Coroutine[Any, Any, None], offset: int) -> None:
        partition, log = self.partition, self._log
        logger.info(
            "%s: truncating the log from %d to %d to match the leader of epoch %d",
            log.partition,
            log.end_offset,
            offset,
            partition.leader_epoch,
        )
        if offset < partition.high_watermark:
            logger.warning(
                "%s: the leader of epoch %d does not have %d committed offsets, from %d to %d",
                log.partition,
                partition.leader_epoch,
                partition.high_watermark - offset,
                offset,
                partition.high_watermark,
            )
        self._truncation_done = asyncio.Event()
        try:
            await truncation
        finally:
            self._truncation_done.set()
            self._truncation_done = None
            log.epochs.truncate_from_end(log.end_offset)
            log.producers.advance(partition.high_watermark)
            partition.clamp_high_watermark()
        if partition.state is not None:
            # The controller may have elected this node during the truncation.
            partition.become(partition.state)
