"""Replays the metadata log into images, and publishes each committed one to the node.

The loader keeps two images: the committed one, and on the active controller the pending one, which
includes uncommitted records. Kafka's counterpart of the first is `MetadataLoader`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import METADATA_STEPS_PER_TURN, REPLAYED_METADATA_RECORDS_A_TURN
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.metadata import delta_in_turns
from penstock.node.quorum.batches import decode_batches
from penstock.node.quorum.log import MetadataLog

# Called with each committed image. Returns the steps by which the node applies it; the next image
# is published after the last step.
Publisher = Callable[[MetadataImage, MetadataDelta], Iterable[None]]


class _Uncommitted(NamedTuple):
    """A batch that the active controller appended."""

    base_offset: int
    end_offset: int
    records: tuple[object, ...]


class MetadataLoader:
    """`image` is the committed image; `applied_offset` is how far the node has applied it."""

    def __init__(self, log: MetadataLog, publisher: Publisher) -> None:
        self.image = MetadataImage.empty()
        self.applied_offset = self.image.offset
        self._log = log
        self._publisher = publisher
        # The steps that are left of the image that is being published.
        self._steps: Iterator[None] | None = None
        # None unless this node is the active controller.
        self._pending: MetadataImage | None = None
        self._uncommitted: deque[_Uncommitted] = deque()
        # Futures of all that wait for an offset, and those of appends among them.
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._appends: list[asyncio.Future[None]] = []

    @property
    def end_offset(self) -> int:
        return self.image.offset + 1

    @property
    def pending(self) -> MetadataImage:
        """The image up to the log end on the active controller: the next record gets the offset
        after that of this image. The committed image on other nodes."""
        if self._pending is None:
            return self.image
        last_offset = self._log.end.offset - 1
        if self._pending.offset < last_offset:
            # All records of this epoch come through `append`, except control batches, such as those
            # of new voters. They change no image.
            self._pending = replace(self._pending, offset=last_offset)
        return self._pending

    # The active controller

    def begin_leading(self) -> None:
        self._pending = self.image

    def append(self, records: tuple[object, ...], epoch: int, *, is_atomic: bool) -> int:
        """Append records as the active controller. Return the offset of the last one."""
        first_offset = base_offset = self._log.end.offset
        pending, _delta = self.pending.replay(records, base_offset + len(records) - 1)
        for end_offset in self._log.append(records, epoch, is_atomic=is_atomic):
            batch = records[base_offset - first_offset : end_offset - first_offset]
            self._uncommitted.append(_Uncommitted(base_offset, end_offset, batch))
            base_offset = end_offset
        self._pending = pending
        return base_offset - 1

    def append_applied(self, offset: int) -> asyncio.Future[None]:
        """Return a future that completes when an appended record is applied, or fails with
        NOT_CONTROLLER when the outcome becomes unknown."""
        applied = self._wait(offset)
        self._appends.append(applied)
        return applied

    def stop_leading(self) -> None:
        """Fail the waiting appends: the next leader may commit their records, or overwrite them."""
        self._pending = None
        self._uncommitted.clear()
        appends, self._appends = self._appends, []
        for applied in appends:
            if not applied.done():
                applied.set_exception(
                    not_controller("the leadership was lost before the change was committed")
                )

    # Publishing

    def publish(self, high_watermark: int) -> bool:
        """Publish a bounded part of what is committed. Return True if nothing is left."""
        if self._steps is None and self.end_offset < high_watermark:
            records, last_offset = self._next_records(high_watermark)
            self._begin(*self.image.replay(records, last_offset))
        self._take_steps(METADATA_STEPS_PER_TURN)
        return self._steps is None and self.end_offset >= high_watermark

    async def load(self, image: MetadataImage) -> None:
        """Publish the image of a snapshot, if it is ahead of the current one. The event loop runs
        between bounded parts: if another image is published meanwhile, compare with that one."""
        await self._finish_steps()
        while image.offset > self.image.offset:
            before = self.image
            delta = await delta_in_turns(before, image)
            if self.image is before and self._steps is None:
                self._begin(image, delta)
            await self._finish_steps()

    async def _finish_steps(self) -> None:
        """Return when the last published image is applied; nothing runs before the caller does."""
        while self._steps is not None:
            self._take_steps(METADATA_STEPS_PER_TURN)
            if self._steps is not None:
                await asyncio.sleep(0)

    def _begin(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        self._steps = iter(self._publisher(image, delta))

    def _take_steps(self, limit: int) -> None:
        if self._steps is None or sum(1 for _step in islice(self._steps, limit)) == limit:
            return
        self._steps = None
        self.applied_offset = self.image.offset
        self._complete_waiters()

    def _next_records(self, high_watermark: int) -> tuple[list[object], int]:
        """Return whole batches of committed records, about as many as one turn of the event loop
        may replay, and their last offset.

        The active controller has them in memory, other nodes read a part of the log.
        """
        records: list[object] = []
        last_offset = self.image.offset
        own = self._uncommitted
        while own and own[0].base_offset <= last_offset:
            # It was read from the log, behind a control batch.
            own.popleft()
        while (
            own
            and len(records) < REPLAYED_METADATA_RECORDS_A_TURN
            and own[0].base_offset == last_offset + 1
            and own[0].end_offset <= high_watermark
        ):
            append = own.popleft()
            records += append.records
            last_offset = append.end_offset - 1
        if last_offset == self.image.offset:
            data = self._log.read(self.end_offset, below=high_watermark)
            for header, batch_records in decode_batches(data):
                records += batch_records
                last_offset = header.last_offset
                if len(records) >= REPLAYED_METADATA_RECORDS_A_TURN:
                    break
        return records, last_offset

    # Waiting

    async def wait_applied(self, offset: int) -> None:
        if self.applied_offset < offset:
            await self._wait(offset)

    def _wait(self, offset: int) -> asyncio.Future[None]:
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, applied))
        return applied

    def _complete_waiters(self) -> None:
        due = [applied for offset, applied in self._waiters if offset <= self.applied_offset]
        self._waiters = [
            (offset, applied)
            for offset, applied in self._waiters
            if offset > self.applied_offset and not applied.done()
        ]
        for applied in due:
            if not applied.done():
                applied.set_result(None)
        self._appends = [applied for applied in self._appends if not applied.done()]


def not_controller(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, reason)
