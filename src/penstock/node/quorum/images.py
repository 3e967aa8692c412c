"""Two images of the cluster's metadata: the committed one, and on the active leader the one with
what is still on its way.

Owns how records become images, in order, and who waits for that. Never knows votes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.quorum.log import QuorumLog, decoded
from penstock.node.quorum.snapshot_files import difference

# Gives the steps in which the rest of the node follows a change. The next change comes when they
# are done.
Applied = Callable[[MetadataImage, MetadataDelta], Iterable[None]]

# So many at once, then the loop goes on: a step is a partition that is made, which takes up to a
# millisecond.
_STEPS = 4


class _Uncommitted(NamedTuple):
    base_offset: int
    end_offset: int
    records: tuple[object, ...]


class Images:
    """`end_offset` is where applying goes on."""

    def __init__(self, log: QuorumLog, on_applied: Applied) -> None:
        self.image = MetadataImage.empty()
        # None where this node is not the active leader.
        self.leading: MetadataImage | None = None
        self._log = log
        self._on_applied = on_applied
        self._steps: Iterator[None] | None = None
        # Up to here the rest of the node has followed.
        self.applied_offset = self.image.offset
        self._uncommitted: deque[_Uncommitted] = deque()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._deciding: list[asyncio.Future[None]] = []

    @property
    def end_offset(self) -> int:
        return self.image.offset + 1

    @property
    def pending(self) -> MetadataImage:
        return self.image if self.leading is None else self.leading

    # Deciding

    def lead(self) -> None:
        self.leading = self.image

    def append(self, records: tuple[object, ...], epoch: int) -> tuple[int, asyncio.Future[None]]:
        """On the active leader. Gives the offset of the last record, and what tells when it is
        applied, or that nobody will know."""
        base_offset = self._log.end.offset
        pending, _delta = self.pending.replay(records, base_offset + len(records) - 1)
        end_offset = self._log.append(records, epoch)
        self.leading = pending
        self._uncommitted.append(_Uncommitted(base_offset, end_offset, records))
        applied = self._wait(end_offset - 1)
        self._deciding.append(applied)
        return end_offset - 1, applied

    def stop_leading(self) -> None:
        """What was on its way may be committed by another leader, or not: who waits for it cannot
        know."""
        self.leading = None
        self._uncommitted.clear()
        deciding, self._deciding = self._deciding, []
        for applied in deciding:
            if not applied.done():
                applied.set_exception(
                    not_controller("the leadership was lost before the change was committed")
                )

    # Applying

    def apply(self, high_watermark: int) -> bool:
        """Applies what is committed, or a bounded part of it. Whether all of it is applied now."""
        if self._steps is None and self.end_offset < high_watermark:
            records, last_offset = self._next(high_watermark)
            self._begin(*self.image.replay(records, last_offset))
        self._follow(_STEPS)
        return self._steps is None and self.end_offset >= high_watermark

    def _begin(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        self._steps = iter(self._on_applied(image, delta))

    def _follow(self, most: int | None = None) -> None:
        """Takes so many steps, or all."""
        if self._steps is None or sum(1 for _step in islice(self._steps, most)) == most:
            return
        self._steps = None
        self.applied_offset = self.image.offset
        self._tell()

    def _next(self, high_watermark: int) -> tuple[list[object], int]:
        """The leader need not read what it wrote itself."""
        records: list[object] = []
        last_offset = self.image.offset
        own = self._uncommitted
        while own and own[0].base_offset == last_offset + 1 and own[0].end_offset <= high_watermark:
            taken = own.popleft()
            records += taken.records
            last_offset = taken.end_offset - 1
        if last_offset == self.image.offset:
            data = self._log.read(self.end_offset, below=high_watermark)
            for header, some in decoded(data):
                records += some
                last_offset = header.last_offset
        return records, last_offset

    def load(self, image: MetadataImage) -> None:
        """A snapshot, where it is ahead."""
        if image.offset > self.image.offset:
            self._follow()
            self._begin(image, difference(self.image, image))
            self._follow()

    # Waiting

    async def wait_applied(self, offset: int) -> None:
        if self.applied_offset < offset:
            await self._wait(offset)

    def _wait(self, offset: int) -> asyncio.Future[None]:
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, applied))
        return applied

    def _tell(self) -> None:
        due = [applied for offset, applied in self._waiting if offset <= self.applied_offset]
        self._waiting = [
            (offset, applied)
            for offset, applied in self._waiting
            if offset > self.applied_offset and not applied.done()
        ]
        for applied in due:
            if not applied.done():
                applied.set_result(None)
        self._deciding = [applied for applied in self._deciding if not applied.done()]


def not_controller(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, reason)
