"""One shard of the coordinator on the broker that leads its partition, in one leader epoch: asked,
written down, answered, dropped.

What is decided is the coordinator's. Laws of this file:
- The shard is asked only while this broker leads in the epoch that it was loaded in, and enough
  replicas are in sync to append.
- A step's records are appended in the turn in which it was decided. Where that fails the shard is
  worthless, and `on_lost` is told.
- An answer leaves when all that the shard has appended so far is committed, or at once where the
  step says so.
- Whoever waits is answered, whatever happens: by the shard, or with the error that came between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from penstock.coordinator.runtime.step import Answer, Record, Step, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import BATCH_HEADER_BYTES
from penstock.metadata.image import MetadataImage
from penstock.node.partition.partition import Partition
from penstock.node.shards.loading import Loading, wait_until
from penstock.node.shards.tickets import Refused, Tickets
from penstock.records.build import build_batch
from penstock.records.compression import Codec
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.groups.shard import Shard

R = TypeVar("R")

# (shard, ticket, now in milliseconds) -> step
Decide = Callable[["Shard", Ticket, int], Step]

logger = logging.getLogger(__name__)

# A record in a batch, besides its key and value: at most.
_RECORD_OVERHEAD = 32
# How long to wait with what is due while too few replicas are in sync.
_TRY_AGAIN_MS = 500


class GroupShard:
    """`begin` or `load` it first; until then every question is refused with
    COORDINATOR_LOAD_IN_PROGRESS."""

    def __init__(
        self,
        world: World,
        partition: Partition,
        shard: Shard,
        *,
        commit_timeout_s: float,
        codec: Codec,
        on_lost: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.loaded = False
        self._world = world
        self._shard = shard
        self._commit_timeout_s = commit_timeout_s
        self._codec = codec
        self._on_lost = on_lost
        self._dropped = False
        # The end of all that its state rests on.
        self._end = partition.log_end_offset
        self._tickets = Tickets()
        self._new_image: MetadataImage | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Coming and going

    @property
    def leads(self) -> bool:
        partition = self.partition
        return not self._dropped and partition.is_leader and partition.leader_epoch == self.epoch

    @property
    def _is_ready(self) -> bool:
        """What is answered must not be lost, and what is decided must be written."""
        return self.partition.is_committed(self._end) and self._enough_in_sync

    def begin(self) -> bool:
        """Loads it, if there is nothing to be loaded."""
        if self.partition.log_start_offset == self._end and self._is_ready:
            self._loaded()
        return self.loaded

    async def load(self, loading: Loading) -> None:
        """Up to the log's end as it was at the election."""
        name, began = self.partition.topic_partition, self._now_ms()
        try:
            count = await loading.load(
                self.partition, self._end, self._shard.replay, lambda: self.leads
            )
            await wait_until(self.partition, lambda: self._is_ready or not self.leads)
        except Exception as error:
            logger.exception("%s: its groups cannot be loaded", name)
            self.drop(
                KafkaError(
                    ErrorCode.NOT_COORDINATOR, f"the groups of {name} cannot be loaded: {error}"
                )
            )
        if self.leads:
            logger.info(
                "%s: %d records of groups loaded in %d ms, leader epoch %d",
                name,
                count,
                self._now_ms() - began,
                self.epoch,
            )
            self._loaded()

    def _loaded(self) -> None:
        self.loaded = True
        self._by_itself(lambda: self._do(lambda: self._shard.loaded(self._now_ms())))

    def drop(self, error: KafkaError) -> None:
        """It answers nothing any more; whoever waits is told why."""
        self._dropped = True
        if self._timer is not None:
            self._timer.cancel()
        self._tickets.refuse_all(error)

    # Asking

    def ask(self, decide: Decide, refused: Refused[R], *, writes: bool = True) -> R | Awaitable[R]:
        """The answer, or a future of it. KafkaError where the shard cannot be asked, or what it
        decided cannot be written. What never writes is also asked while nothing can be written:
        sessions should not end because of that."""
        self._check_loaded()
        if writes and not self._enough_in_sync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"too few replicas of {self.partition.topic_partition} are in sync",
            )
        if writes:
            self._catch_up()
        ticket = self._tickets.new()
        self._do(lambda: decide(self._shard, ticket, self._now_ms()))
        at_once = self._tickets.at_once
        return cast(R, at_once) if at_once is not None else self._tickets.wait(ticket, refused)

    def read(self, look: Callable[[Shard], R], refused: Refused[R]) -> R | Awaitable[R]:
        """What the shard says, once that is committed."""
        self._check_loaded()
        if self._new_image is not None:
            self._by_itself(self._catch_up)
        answer = look(self._shard)
        if self.partition.is_committed(self._end):
            return answer
        ticket = self._tickets.new()
        self._when_committed((Answer(ticket, answer),))
        return self._tickets.wait(ticket, refused)

    def image_changed(self, image: MetadataImage) -> None:
        """Where there are no groups it can wait until there is one."""
        self._new_image = image
        if self.loaded and self._shard.groups.by_id:
            self._by_itself(self._catch_up)

    def _check_loaded(self) -> None:
        name = self.partition.topic_partition
        if not self.leads:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not lead {name} any more"
            )
        if not self.loaded:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the groups of {name} are being loaded"
            )

    @property
    def _enough_in_sync(self) -> bool:
        leader = self.partition.leader
        return leader is not None and leader.enough_in_sync

    # What the shard does by itself

    def _by_itself(self, act: Callable[[], None]) -> None:
        """Where it cannot be written now, it is tried again in a moment. What went wrong beyond
        that was told already."""
        if not self.leads:
            return
        if not self._enough_in_sync:
            self._set_timer(self._now_ms() + _TRY_AGAIN_MS)
            return
        with contextlib.suppress(KafkaError):
            act()

    def _expire(self) -> None:
        self._timer = None
        self._by_itself(self._do_what_is_due)

    def _do_what_is_due(self) -> None:
        self._catch_up()
        self._do(lambda: self._shard.expire(self._now_ms(), self._world.clock.now_ms()))

    def _catch_up(self) -> None:
        image, self._new_image = self._new_image, None
        if image is not None:
            self._do(lambda: self._shard.image_changed(image, self._now_ms()))

    def _set_timer(self, due_ms: int) -> None:
        """An earlier one stays: it finds nothing to do, and looks again. So a heartbeat, which puts
        a deadline off, costs nothing here."""
        due = max(due_ms, self._now_ms() + 1) / 1000
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(due, self._expire)

    def _now_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)

    # Carrying out

    def _do(self, decide: Callable[[], Step]) -> None:
        """Decides, writes and answers."""
        name = self.partition.topic_partition
        try:
            step = decide()
            if step.records:
                self._append(step.records)
        except Exception as error:
            if isinstance(error, KafkaError):
                logger.error(
                    "%s: its groups are loaded anew, what they decided could not be written: %s",
                    name,
                    error,
                )
            else:
                logger.exception("%s: its groups are loaded anew after a mistake", name)
                error = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"a mistake of the coordinator of {name}"
                )
            self.drop(error)
            self._on_lost()
            raise error from None
        for line in step.told:
            logger.info("%s", line)
        if step.answers:
            if step.at_once or self.partition.is_committed(self._end):
                self._tickets.deliver(step.answers)
            else:
                self._when_committed(step.answers)
        due_ms = self._shard.next_deadline_ms()
        if due_ms is not None:
            self._set_timer(due_ms)

    def _append(self, records: Iterable[Record]) -> None:
        """In one batch, unless that would be larger than the topic allows."""
        timestamp = self._world.clock.now_ms()
        for few in _divided(records, self.partition.config.max_message_bytes - BATCH_HEADER_BYTES):
            batch = build_batch(
                [(key, value, (), timestamp) for key, value in few], codec=self._codec
            )
            self._end = self.partition.append(batch, acks_all=True).end_offset

    def _when_committed(self, answers: tuple[Answer, ...]) -> None:
        deadline = self._world.clock.monotonic() + self._commit_timeout_s
        waited = asyncio.ensure_future(self.partition.wait_committed(self._end, deadline))
        waited.add_done_callback(partial(self._committed, answers))

    def _committed(self, answers: tuple[Answer, ...], waited: asyncio.Future[None]) -> None:
        error = waited.exception()
        if error is None:
            self._tickets.deliver(answers)
        elif isinstance(error, KafkaError):
            self._tickets.refuse(answers, error)
        else:
            raise error


def _divided(records: Iterable[Record], most_bytes: int) -> Iterator[list[Record]]:
    few: list[Record] = []
    size = 0
    for record in records:
        more = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD
        if few and size + more > most_bytes:
            yield few
            few, size = [], 0
        few.append(record)
        size += more
    yield few
