"""The runner of one state machine on the broker that leads its partition, in one leader epoch.

Laws, besides those of `coordinator/runtime/step.py`:
- A machine runs only while this broker leads the partition in the epoch in which it was loaded.
- While too few replicas are in sync, nothing is appended: requests are refused, due work waits, and
  the machine's clock stands still (`StepClock`), so that no deadline passes because the shard
  cannot write. Heartbeats are decided even then, and refused only if their step writes.
- A step is decided, checked, appended and replayed in one synchronous run. If the append fails, or
  the machine raises anything but KafkaError, the shard is unloaded and `on_failed` reloads it.
- Replies and effects leave when everything that the shard has appended is committed. A reply whose
  commit times out becomes an error; the step may still be committed later. An effect waits for its
  commit without a deadline: the machine of the next leader epoch derives it from the log again.
- Every request gets one response: from the machine, or with the error that prevented it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Generic, TypeGuard, TypeVar, cast

from penstock.coordinator.runtime.machine import StateMachine
from penstock.coordinator.runtime.step import Now, Reply, Step, Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_DUE_S, MAX_DUE_STEPS
from penstock.metadata.image import MetadataImage
from penstock.node.partition.partition import Partition
from penstock.node.shards.loading import ShardLoader, wait_until
from penstock.node.shards.replies import Refused, Replies
from penstock.node.shards.step_batch import check_size, step_batch
from penstock.node.shards.step_clock import StepClock
from penstock.records.compression import Codec
from penstock.world import World

M = TypeVar("M", bound=StateMachine[Any])
E = TypeVar("E")
R = TypeVar("R")

# (machine, ticket, now) -> step
Decide = Callable[[M, Ticket, Now], Step[E]]

logger = logging.getLogger(__name__)

# How long to postpone due work while too few replicas are in sync.
_RETRY_S = 0.5

# Checks that are made before anything is written: the step is refused, not the shard lost. The
# first are no news to operators: a client retries, or was fenced.
_QUIET_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
_REFUSALS = _QUIET_REFUSALS | {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


class Shard(Generic[M, E]):
    """`load_empty` or `load` it first. Until then every request is refused with
    COORDINATOR_LOAD_IN_PROGRESS. `perform` carries out effects."""

    def __init__(
        self,
        world: World,
        partition: Partition,
        machine: M,
        *,
        commit_timeout_s: float,
        codec: Codec,
        on_failed: Callable[[], None],
        perform: Callable[[E], None],
    ) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.loaded = False
        self._world = world
        self._clock = StepClock(world.clock)
        self._commit_timeout_s = commit_timeout_s
        self._codec = codec
        self._on_failed = on_failed
        self._perform = perform
        self._unloaded = False
        # The end of the records that the machine's state rests on.
        self._end = partition.log_end_offset
        self._replies = Replies()
        # Effects that wait for the commit of an offset, in the order of their offsets.
        self._effects: deque[tuple[int, tuple[E, ...]]] = deque()
        # The newest image that the machine has not seen, and the topics deleted up to it.
        self._new_image: MetadataImage | None = None
        self._deleted_topics: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    # Loading and unloading

    @property
    def leads(self) -> bool:
        partition = self.partition
        return not self._unloaded and partition.is_leader and partition.leader_epoch == self.epoch

    @property
    def _is_committed(self) -> bool:
        """True if the state cannot be lost any more."""
        return self.partition.is_committed(self._end)

    def load_empty(self) -> bool:
        """Load the shard synchronously if its log is empty; return True if it is loaded."""
        if self.partition.log_start_offset == self._end and self._is_committed:
            self._start()
        return self.loaded

    async def load(self, loader: ShardLoader) -> None:
        """Replay the log up to its end at the election, and wait until that is committed. Too few
        replicas in sync do not prevent it: members send heartbeats and fetch offsets even then."""
        name, began = self.partition.topic_partition, self._world.clock.monotonic()
        try:
            count = await loader.load(
                self.partition, self._end, self.machine.replay, lambda: self.leads
            )
            await wait_until(self.partition, lambda: self._is_committed or not self.leads)
        except Exception as error:
            logger.exception("%s: the shard cannot be loaded", name)
            self.unload(
                KafkaError(ErrorCode.NOT_COORDINATOR, f"shard {name} cannot be loaded: {error}")
            )
        if self.leads:
            logger.info(
                "%s: %d records loaded in %d ms, leader epoch %d",
                name,
                count,
                (self._world.clock.monotonic() - began) * 1000,
                self.epoch,
            )
            self._start()

    def _start(self) -> None:
        self.loaded = True
        with contextlib.suppress(KafkaError):
            self._run(self.machine.loaded)

    def unload(self, error: KafkaError) -> None:
        """Refuse all requests that wait and drop effects that are not committed."""
        self._unloaded = True
        if self._timer is not None:
            self._timer.cancel()
        self.partition.off_change(self._release_effects)
        self._effects.clear()
        self._replies.refuse_all(error)

    # Requests

    def decide(
        self, decide: Decide[M, E], refused: Refused[R], *, needs_writes: bool = True
    ) -> R | Awaitable[R]:
        """Run one step and return its reply, or a future of it. KafkaError: the machine cannot run,
        or the step was refused.

        While too few replicas are in sync, a request that needs writes is refused before it is
        decided. Any other, a heartbeat, is refused if its step turns out to write.
        """
        self._check_loaded()
        if self._enough_in_sync:
            self._apply_image()
        elif needs_writes:
            raise self._too_few_in_sync()
        ticket = self._replies.new_ticket()
        self._run(lambda now: decide(self.machine, ticket, now), has_sender=True)
        immediate = self._replies.immediate
        return cast(R, immediate) if immediate is not None else self._replies.wait(ticket, refused)

    def act(self, decide: Callable[[M, Now], Step[E]]) -> None:
        """Run a step that no request waits for, also while too few replicas are in sync: the
        machine itself repeats a step that was refused. KafkaError: the machine cannot run."""
        self._check_loaded()
        if self._enough_in_sync:
            self._apply_image()
        with contextlib.suppress(KafkaError):
            self._run(lambda now: decide(self.machine, now))
        if self.leads:
            self._schedule()

    def read(self, look: Callable[[M], R], refused: Refused[R]) -> R | Awaitable[R]:
        """Return what `look` sees, once the state that it saw is committed."""
        self._check_loaded()
        if self._new_image is not None:
            self._run_unasked(self._apply_image)
            self._check_loaded()
        response = look(self.machine)
        if self._is_committed:
            return response
        ticket = self._replies.new_ticket()
        self._reply_when_committed((Reply(ticket, response),))
        return self._replies.wait(ticket, refused)

    def image_changed(self, image: MetadataImage, deleted_topics: Collection[str] = ()) -> None:
        self._new_image = image
        self._deleted_topics.update(deleted_topics)
        if self.loaded and not self.machine.is_empty:
            self._run_unasked(self._apply_image)

    def _check_loaded(self) -> None:
        name = self.partition.topic_partition
        if not self.leads:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this broker does not lead {name} any more"
            )
        if not self.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is being loaded")

    @property
    def _enough_in_sync(self) -> bool:
        leader = self.partition.leader
        return leader is not None and leader.enough_in_sync

    def _too_few_in_sync(self) -> KafkaError:
        """Stop the clock, since its sender cannot do what it has to; return the refusal."""
        self._now()
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"too few replicas of {self.partition.topic_partition} are in sync",
        )

    # Work without a request

    def _run_unasked(self, work: Callable[[], None]) -> None:
        """Run work that no request asked for, or postpone it while nothing can be written. Refusals
        and failures were logged; the timer continues after a refusal."""
        if not self.leads:
            return
        if not self._enough_in_sync:
            self._wait_for_replicas()
            return
        with contextlib.suppress(KafkaError):
            work()
        if self.leads:
            self._schedule()

    def _timer_fired(self) -> None:
        self._timer = None
        self._run_unasked(self._run_due)

    def _run_due(self) -> None:
        """Run a bounded number of due steps; the timer continues."""
        clock = self._world.clock
        until = clock.monotonic() + MAX_DUE_S
        self._apply_image()
        for _ in range(MAX_DUE_STEPS):
            self._run(self.machine.run_due)
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > self._now().ms or not self.leads:
                break
            if clock.monotonic() >= until:
                break

    def _apply_image(self) -> None:
        """Give the newest image to the machine. A refusal of that step is not one of the request
        that comes with it."""
        image, self._new_image = self._new_image, None
        if image is None:
            return
        deleted, self._deleted_topics = self._deleted_topics, set()
        try:
            self._run(lambda now: self.machine.image_changed(image, deleted, now))
        except KafkaError:
            self._check_loaded()

    def _wait_for_replicas(self) -> None:
        """Stop the clock, and look again later."""
        self._now()
        self._set_timer(self._world.clock.monotonic() + _RETRY_S)

    def _schedule(self) -> None:
        """Set the timer for the machine's next deadline, in the next millisecond at the
        earliest."""
        due_ms = self.machine.next_deadline_ms()
        if due_ms is None:
            return
        if self._enough_in_sync:
            self._set_timer(self._clock.loop_time(max(due_ms, self._now().ms + 1)))
        else:
            self._wait_for_replicas()

    def _set_timer(self, due: float) -> None:
        """Set the timer to a time of the event loop. An earlier timer stays: it finds nothing due
        and sets itself again. So extending a deadline, as every heartbeat does, costs nothing
        here."""
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._timer_fired)

    def _now(self) -> Now:
        return self._clock.now(is_running=self._enough_in_sync)

    # Steps

    def _run(self, decide: Callable[[Now], Step[E]], *, has_sender: bool = False) -> None:
        """Decide a step, write it, and send its replies and effects when it is committed.
        KafkaError: it was refused and has changed nothing, or the shard was unloaded."""
        now = self._now()
        try:
            step = decide(now)
        except KafkaError:
            raise
        except Exception as error:
            logger.exception(
                "%s: the state machine failed; reloading it from the log",
                self.partition.topic_partition,
            )
            raise self._failed(_coordinator_failed()) from error
        if step.writes:
            self._append(step, now, has_sender)
        for line in step.log_lines:
            logger.info("%s", line)
        if step.replies:
            if step.immediate or self._is_committed:
                self._replies.deliver(step.replies)
            else:
                self._reply_when_committed(step.replies)
        if step.effects:
            self._effects.append((self._end, step.effects))
            self.partition.on_change(self._release_effects)
            self._release_effects()
        self._schedule()

    def _refuse(self, step: Step[E], error: KafkaError, has_sender: bool) -> None:
        """Revert a step that cannot be appended. The sender gets the error, and others that the
        step would have replied to still wait. Without a sender they get the error, lest they wait
        for ever."""
        step.undo.revert()
        if error.code not in _QUIET_REFUSALS:
            logger.error(
                "%s: a step of %d records was refused: %s",
                self.partition.topic_partition,
                len(step.records),
                error.message,
            )
        if not has_sender:
            self._replies.refuse(step.replies, error)

    def _append(self, step: Step[E], now: Now, has_sender: bool) -> None:
        """Append the step's batch, or revert the step, or unload the shard."""
        try:
            if not self._enough_in_sync:
                raise self._too_few_in_sync()
            batch = step_batch(step, now, self._codec)
            check_size(batch, self.partition)
            appended = self.partition.append(batch, acks_all=True, from_client=False)
        except Exception as error:
            if self._is_refusal(error):
                self._refuse(step, error, has_sender)
                raise
            logger.error(
                "%s: a step cannot be appended; reloading the shard from the log: %s",
                self.partition.topic_partition,
                error,
            )
            refusal = error if isinstance(error, KafkaError) else _coordinator_failed()
            raise self._failed(refusal) from error
        self._end = appended.end_offset
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "this broker has lost the partition")

    @staticmethod
    def _is_refusal(error: Exception) -> TypeGuard[KafkaError]:
        """Return True if nothing was written, so that the step can be reverted."""
        return isinstance(error, KafkaError) and error.code in _REFUSALS

    def _failed(self, error: KafkaError) -> KafkaError:
        self.unload(error)
        self._on_failed()
        return error

    def _reply_when_committed(self, replies: tuple[Reply, ...]) -> None:
        deadline = self._world.clock.monotonic() + self._commit_timeout_s
        self.partition.on_committed(self._end, deadline, partial(self._reply, replies))

    def _reply(self, replies: tuple[Reply, ...], error: KafkaError | None) -> None:
        if error is None:
            self._replies.deliver(replies)
        else:
            self._replies.refuse(replies, error)

    def _release_effects(self) -> None:
        """Carry out the effects whose steps are committed."""
        while self._effects and self.leads and self.partition.is_committed(self._effects[0][0]):
            _end, effects = self._effects.popleft()
            for effect in effects:
                self._perform(effect)
        if not self._effects:
            self.partition.off_change(self._release_effects)


def _coordinator_failed() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator failed; see its log")
