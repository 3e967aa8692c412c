"""One fetch from its request to its response, which may wait (Kafka's DelayedFetch).

A fetch reads its due partitions. If that is less than min.bytes, it waits for a change of a
partition or for its deadline. A change wakes the fetch through the node's `ActionQueue`: however
many partitions changed, it reads them once, before the callback in which they changed returns. A
fetch of many partitions reads some of them per iteration of the event loop, and encodes the
response in the same way. Records that are not in memory are read by a thread first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.errors import InvariantBroken
from penstock.limits import ANSWERED_PARTITIONS_A_TURN, FETCH_PARTITIONS_A_TURN
from penstock.node.delayed import DelayedResponse
from penstock.node.fetch.reader import FetchReader, PartitionRead
from penstock.node.fetch.sessions import NO_SESSION, FetchSession
from penstock.node.fetch.state import CONSUMER_ID, NEVER_SENT, FetchState, Key

if TYPE_CHECKING:
    from penstock.node.fetch.fetches import Fetches
    from penstock.node.fetch.reader import FetchParams
    from penstock.node.partition.partition import Partition
    from penstock.protocol.messages.fetch import FetchResponse


class FetchResult(NamedTuple):
    """What a response has: all partitions of a full fetch, the changed ones of an incremental
    one."""

    session_id: int
    partitions: Sequence[tuple[Key, PartitionRead]]


class Respond(Protocol):
    """Makes the response of one request."""

    def response(self, result: FetchResult) -> FetchResponse: ...

    def in_slices(
        self, session_id: int, slices: Iterable[Sequence[tuple[Key, PartitionRead]]]
    ) -> Generator[None, None, FetchResponse]:
        """Encode the response, one slice at a time."""

    def throttled(self, session_id: int, throttle_ms: int) -> FetchResponse:
        """Make the empty response to a consumer that exceeds its quota."""


class DelayedFetch(DelayedResponse["FetchResponse"]):
    """`start` it. It is the response only if it has to wait."""

    __slots__ = (
        "_answering",
        "_deadline",
        "_fetches",
        "_has_more",
        "_is_expired",
        "_is_incremental",
        "_is_scheduled",
        "_is_woken",
        "_params",
        "_reader",
        "_respond",
        "_session",
        "_state",
        "_timer",
        "_unread",
    )

    def __init__(
        self,
        fetches: Fetches,
        params: FetchParams,
        state: FetchState,
        session: FetchSession | None,
        respond: Respond,
        *,
        is_incremental: bool,
    ) -> None:
        super().__init__()
        self._fetches = fetches
        self._params = params
        self._state = state
        self._session = session
        self._respond = respond
        self._is_incremental = is_incremental
        self._reader = FetchReader(fetches.metadata, fetches.replicas, state, params)
        self._is_expired = params.max_wait_s <= 0
        self._is_woken = False
        self._is_scheduled = False
        # Every partition is read once before the response, in as many iterations as that takes.
        # Those that become due meanwhile are not waited for.
        self._unread = 0
        self._has_more = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # The slices of a large response that are left to be encoded.
        self._answering: Generator[None, None, FetchResponse] | None = None

    def start(self) -> FetchResponse | DelayedFetch:
        if self._state.delayed is not None:
            # The fetcher sent another request before it got this response.
            self._state.delayed.answer_now()
        if self._state.throttled and not self._fetches.is_throttled:
            self._state.release_throttled()
        self._unread = len(self._state.due)
        self._read()
        if self._is_ready:
            charge = self._params.charge
            throttled = None if charge is None else self._throttled(charge)
            return self._respond.response(self._result()) if throttled is None else throttled
        self._wait()
        return self

    # Waiting

    @property
    def _is_ready(self) -> bool:
        if self._has_more and self._unread > 0:
            return False
        if self._state.cold and self._reader.kind.waits_for_disk:
            return False
        return self._is_expired or self._reader.is_enough

    def _read(self) -> None:
        self._has_more = self._reader.read_due()
        self._unread -= FETCH_PARTITIONS_A_TURN

    def _wait(self) -> None:
        self._fetches.delayed_count += 1
        self._state.delayed = self
        self._reader.watch_all()
        if not self._is_expired:
            now = self._fetches.clock.monotonic()
            self._deadline = now + self._params.max_wait_s
            if self._reader.is_stale:
                self._deadline = self._stale_deadline(now)
            self._set_timer()
        self._continue()

    def _continue(self) -> None:
        if self._state.cold:
            self._fetches.warm(self._state)
        if self._has_more and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._look()

    def wake(self) -> None:
        """Read the due partitions before the current shell callback returns."""
        if not self._is_woken:
            self._is_woken = True
            self._fetches.actions.add(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self.is_done or self._answering is not None:
            return
        was_stale = self._reader.is_stale
        try:
            self._read()
        except (Exception, InvariantBroken) as error:  # noqa: BLE001 - the response carries it
            self.fail(error)
            return
        if self._is_ready:
            self.answer()
            return
        if self._reader.is_stale and not was_stale:
            self._deadline = self._stale_deadline(self._fetches.clock.monotonic())
            self._set_timer()
        self._continue()

    def _stale_deadline(self, now: float) -> float:
        """A response that has only a new high watermark may wait a moment for records."""
        delay_s = self._reader.kind.stale_watermark_s
        return self._deadline if delay_s is None else min(self._deadline, now + delay_s)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        with self._fetches.actions:
            self._is_expired = True
            if self._is_ready:
                self.answer()

    # Ending

    def answer(self) -> None:
        """Complete the response with what was read so far. A large one is encoded in several
        iterations of the event loop; what changes meanwhile is part of the next one."""
        if self.is_done or self._answering is not None:
            return
        charge = self._params.charge
        throttled = None if charge is None else self._throttled(charge)
        if throttled is not None:
            self.complete(throttled)
            return
        if len(self._reader.reads) > ANSWERED_PARTITIONS_A_TURN:
            self._answering = self._answer_in_slices()
            self._answer_slice()
            return
        try:
            response = self._respond.response(self._result())
        except (Exception, InvariantBroken) as error:  # noqa: BLE001 - the response carries it
            self.fail(error)
        else:
            self.complete(response)

    def _throttled(self, charge: Callable[[int], int]) -> FetchResponse | None:
        """Return an empty response if the consumer exceeds its quota. All that was read is due
        again. As in Kafka, a consumer that asked for a session has to ask again."""
        throttle_ms = charge(self._reader.size)
        if not throttle_ms:
            return None
        session = self._session
        if session is not None and not self._is_incremental:
            self._fetches.sessions.close(session.id)
            session = self._session = None
        self._reader.restore()
        return self._respond.throttled(NO_SESSION if session is None else session.id, throttle_ms)

    def answer_now(self) -> None:
        """Complete the response before this returns."""
        self.answer()
        while not self.is_done:
            self._take_slice()

    def _answer_slice(self) -> None:
        with self._fetches.actions:
            self._take_slice()
        if not self.is_done:
            asyncio.get_running_loop().call_soon(self._answer_slice)

    def _take_slice(self) -> None:
        if self.is_done or self._answering is None:
            return
        try:
            next(self._answering)
        except StopIteration as end:
            self.complete(end.value)
        except (Exception, InvariantBroken) as error:  # noqa: BLE001 - the response carries it
            self.fail(error)

    def _answer_in_slices(self) -> Generator[None, None, FetchResponse]:
        session = self._session
        response = yield from self._respond.in_slices(
            NO_SESSION if session is None else session.id, self._result_slices()
        )
        if session is not None:
            yield from self._reader.settle_slices()
        return response

    def ended(self) -> None:
        # Only a fetch that waits ends here: `start` returns any other.
        self._fetches.delayed_count -= 1
        if self._timer is not None:
            self._timer.cancel()
        state = self._state
        if state.delayed is self:
            state.delayed = None
        if self._session is None:
            state.close()
        elif self._error is not None:
            self._reader.restore()

    def _result(self) -> FetchResult:
        partitions = self._news(self._reader.reads.items())
        if self._session is None:
            return FetchResult(NO_SESSION, partitions)
        self._reader.settle()
        return FetchResult(self._session.id, partitions)

    def _result_slices(self) -> Iterator[list[tuple[Key, PartitionRead]]]:
        reads = iter(self._reader.reads.items())
        while some := list(islice(reads, ANSWERED_PARTITIONS_A_TURN)):
            yield self._news(some)

    def _news(self, reads: Iterable[tuple[Key, PartitionRead]]) -> list[tuple[Key, PartitionRead]]:
        """Return what the response has of these partitions."""
        partitions = []
        for key, result in reads:
            fetched = self._state.partitions.get(key)
            if fetched is None or (self._is_incremental and not result.is_news(fetched)):
                continue
            # After an error everything is news.
            read = result.read
            fetched.sent_high_watermark = NEVER_SENT if read is None else read.high_watermark
            fetched.sent_log_start = NEVER_SENT if read is None else read.log_start_offset
            if result.size and result.partition is not None:
                self._count_sent(result.partition, result.size)
            partitions.append((key, result))
        return partitions

    def _count_sent(self, partition: Partition, size: int) -> None:
        if self._state.replica_id == CONSUMER_ID:
            partition.traffic.bytes_out += size
        else:
            partition.traffic.replication_bytes_out += size
