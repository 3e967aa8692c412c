"""Markers of ended transactions: the coordinator's side of WriteTxnMarkers.

A transaction coordinator performs `WriteMarkers` when the record that prepares the end of a
transaction is committed. The markers go to the leaders of the transaction's partitions. One request
per broker is in flight; what accumulates meanwhile leaves with the next one. When every partition
has its marker, the coordinator writes that the transaction is complete.

Laws:
- A partition of a transaction is in one place: queued for a broker, in a request, or waiting for
  its next attempt. It leaves that place when its marker is committed, its topic is deleted, or the
  transaction is dropped.
- A transaction is dropped when its shard is unloaded or loaded again, which derives the effect from
  the log again. Whatever takes a transaction from a queue checks that first.
- An attempt that fails is repeated after a delay that grows. A new leader ends the delay.
- Nothing is finished within `perform`: the shard that performs an effect is in the middle of a
  step.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.limits import MAX_MARKERS_PER_REQUEST
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.metadata import MetadataView
from penstock.node.shards.marker_channel import MarkerChannel, marker_request, result_codes
from penstock.node.supervisor import Spawn
from penstock.world import World

if TYPE_CHECKING:
    from penstock.coordinator.transactions.table import WriteMarkers
    from penstock.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    WriteLocal = Callable[
        [WriteTxnMarkersRequest], WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]
    ]

# The delay after the first failed attempt and the longest one.
_RETRY_S = 0.02
_MAX_RETRY_S = 1.0

# The broker epoch of a broker that is not registered.
_NO_EPOCH = -1

# The partition has no transaction of this producer epoch. It needs no marker, and will never take
# this one.
_UNNEEDED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction that is being completed. `left` counts the partitions without a marker;
    `waiting` are those that wait for the timer."""

    effect: WriteMarkers
    began: float
    left: int
    failures: int = 0
    waiting: list[TopicPartition] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


# Partitions of one transaction that have the same leader.
_Entry = tuple[_Ending, list[TopicPartition]]


@dataclass(slots=True, eq=False)
class _Destination:
    """A broker that leads partitions of ended transactions."""

    broker_id: int
    channel: MarkerChannel
    # The broker epoch of the process that requests went to.
    epoch: int
    queue: deque[_Entry] = field(default_factory=deque)
    is_sending: bool = False


class TxnMarkers:
    """`request_timeout_s` is request.timeout.ms. `write_local` appends markers to partitions that
    this broker leads. `is_current` tells if the shard that performed an effect still runs.
    `written` gets the effects whose markers are all written."""

    def __init__(
        self,
        world: World,
        node_id: int,
        metadata: MetadataView,
        spawn: Spawn,
        *,
        request_timeout_s: float,
        write_local: WriteLocal,
        is_current: Callable[[WriteMarkers], bool],
        written: Callable[[Collection[WriteMarkers]], None],
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._metadata = metadata
        self._spawn = spawn
        self._request_timeout_s = request_timeout_s
        self._write_local = write_local
        self._is_effect_current = is_current
        self._written = written
        # By transactional id: a transaction ends before the next one of its producer begins.
        self._endings: dict[str, _Ending] = {}
        self._destinations: dict[int, _Destination] = {}

    def perform(self, effect: WriteMarkers) -> None:
        """Write the markers of a transaction. They leave in the next turn of the event loop."""
        ending = _Ending(effect, self._world.clock.monotonic(), len(effect.partitions))
        replaced = self._endings.get(effect.transactional_id)
        if replaced is not None:
            replaced.cancel_timer()
        self._endings[effect.transactional_id] = ending
        self._distribute(ending, effect.partitions)

    def began(self, transactional_id: str) -> float | None:
        """Return when the completion of the producer's last transaction began, None if it has
        ended or has not begun. The time is that of the event loop."""
        ending = self._endings.get(transactional_id)
        return None if ending is None else ending.began

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Retry what waits for a leader that has changed, and give up connections to brokers that
        were fenced or have started again."""
        for broker_id in delta.brokers:
            broker = image.brokers.get(broker_id)
            destination = self._destinations.get(broker_id)
            if destination is None:
                continue
            epoch = _NO_EPOCH if broker is None else broker.epoch
            if broker is None or broker.fenced or epoch != destination.epoch:
                # Markers in flight are sent again.
                destination.channel.close()
            destination.epoch = epoch
        topics = {
            topic.name
            for changed in delta.topics.values()
            for topic in changed
            if topic is not None
        }
        if not topics and not delta.brokers:
            return
        waiting = [
            ending
            for ending in self._endings.values()
            if ending.waiting
            and (delta.brokers or any(partition.topic in topics for partition in ending.waiting))
        ]
        if len(waiting) <= MAX_MARKERS_PER_REQUEST:
            self._retry_all(waiting)
        else:
            self._spawn(self._retry_slices(waiting))

    def close(self) -> None:
        """Drop all transactions. The tasks that send end with their node."""
        for ending in self._endings.values():
            ending.cancel_timer()
        self._endings.clear()
        for destination in self._destinations.values():
            destination.queue.clear()
            destination.channel.close()

    # From effects to queues

    def _is_current(self, ending: _Ending) -> bool:
        transactional_id = ending.effect.transactional_id
        if self._endings.get(transactional_id) is not ending:
            return False
        if self._is_effect_current(ending.effect):
            return True
        self._drop(ending)
        return False

    def _drop(self, ending: _Ending) -> None:
        ending.cancel_timer()
        if self._endings.get(ending.effect.transactional_id) is ending:
            del self._endings[ending.effect.transactional_id]

    def _distribute(self, ending: _Ending, partitions: Collection[TopicPartition]) -> None:
        """Queue the markers of partitions for their leaders."""
        if len(partitions) <= MAX_MARKERS_PER_REQUEST:
            self._distribute_slice(ending, partitions)
        else:
            self._spawn(self._distribute_slices(ending, partitions))

    async def _distribute_slices(
        self, ending: _Ending, partitions: Collection[TopicPartition]
    ) -> None:
        remaining = iter(partitions)
        while some := list(islice(remaining, MAX_MARKERS_PER_REQUEST)):
            self._distribute_slice(ending, some)
            await asyncio.sleep(0)

    def _distribute_slice(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        without_leader, deleted = [], 0
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                deleted += 1
            elif leader < 0:
                without_leader.append(partition)
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, led in by_leader.items():
            destination = self._destination(leader)
            destination.queue.append((ending, led))
            if not destination.is_sending:
                destination.is_sending = True
                self._spawn(self._send_all(destination))
        if without_leader:
            self._retry_later(ending, without_leader, "they have no leader")
        if deleted:
            asyncio.get_running_loop().call_soon(self._count_written, ((ending, deleted),))

    def _destination(self, broker_id: int) -> _Destination:
        destination = self._destinations.get(broker_id)
        if destination is None:
            channel = MarkerChannel(
                self._world, self._node_id, self._metadata, broker_id, self._request_timeout_s
            )
            broker = self._metadata.image.brokers.get(broker_id)
            epoch = _NO_EPOCH if broker is None else broker.epoch
            destination = self._destinations[broker_id] = _Destination(broker_id, channel, epoch)
        return destination

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition, -1 if it has none that is alive, None if the partition
        was deleted. A coordinator has seen every topic of its transactions: it was elected after
        they were created."""
        image = self._metadata.image
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is None:
            return None
        broker = image.brokers.get(state.leader)
        return -1 if broker is None or broker.fenced else state.leader

    # Sending

    async def _send_all(self, destination: _Destination) -> None:
        """Send requests to one broker until its queue is empty."""
        try:
            while entries := self._take(destination.queue):
                await self._send(destination, entries)
        finally:
            destination.is_sending = False

    def _take(self, queue: deque[_Entry]) -> dict[_Ending, list[TopicPartition]]:
        """Take the markers of the next request from a queue."""
        taken: dict[_Ending, list[TopicPartition]] = {}
        room = MAX_MARKERS_PER_REQUEST
        while queue and room > 0:
            ending, partitions = queue.popleft()
            if not self._is_current(ending):
                continue
            if len(partitions) > room:
                queue.appendleft((ending, partitions[room:]))
                partitions = partitions[:room]
            taken.setdefault(ending, []).extend(partitions)
            room -= len(partitions)
        return taken

    async def _send(
        self, destination: _Destination, entries: dict[_Ending, list[TopicPartition]]
    ) -> None:
        request = marker_request(
            (ending.effect, partitions) for ending, partitions in entries.items()
        )
        try:
            if destination.broker_id == self._node_id:
                response = self._write_local(request)
                response = await response if inspect.isawaitable(response) else response
            else:
                response = await destination.channel.call(request)
        except KafkaError as error:
            for ending, partitions in entries.items():
                if self._is_current(ending):
                    self._retry(ending, partitions, destination.broker_id, error.message)
            return
        self._received(destination.broker_id, entries, response)

    def _received(
        self,
        broker_id: int,
        entries: dict[_Ending, list[TopicPartition]],
        response: WriteTxnMarkersResponse,
    ) -> None:
        codes = result_codes(response)
        written = []
        for ending, partitions in entries.items():
            if not self._is_current(ending):
                continue
            failed: dict[TopicPartition, ErrorCode] = {}
            for partition in partitions:
                key = (ending.effect.producer_id, partition)
                code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code:
                    failed[partition] = code
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in failed.values():
                logger.warning(
                    "transactional id %s: broker %d knows a newer coordinator than epoch %d; its "
                    "markers are left to that one",
                    ending.effect.transactional_id,
                    broker_id,
                    ending.effect.coordinator_epoch,
                )
                self._drop(ending)
                continue
            again = _without_unneeded(ending, failed)
            written.append((ending, len(partitions) - len(again)))
            if again:
                codes_text = ", ".join(sorted({code.name for code in again.values()}))
                self._retry(ending, list(again), broker_id, codes_text)
        self._count_written(written)

    def _count_written(self, written: Iterable[tuple[_Ending, int]]) -> None:
        """Report the transactions of which no partition is left."""
        complete = []
        for ending, count in written:
            ending.left -= count
            if ending.left == 0 and self._is_current(ending):
                self._drop(ending)
                complete.append(ending.effect)
        if complete:
            self._written(complete)

    # Failures

    def _retry(
        self, ending: _Ending, partitions: Sequence[TopicPartition], failed_leader: int, reason: str
    ) -> None:
        """Try again: immediately where another broker leads by now, otherwise after a delay."""
        moved = [name for name in partitions if self._leader_of(name) not in (failed_leader, -1)]
        if moved:
            self._distribute(ending, moved)
        stayed = [name for name in partitions if self._leader_of(name) in (failed_leader, -1)]
        if stayed:
            self._retry_later(ending, stayed, f"broker {failed_leader}: {reason}")

    def _retry_later(
        self, ending: _Ending, partitions: Collection[TopicPartition], reason: str
    ) -> None:
        if ending.failures == 0:
            logger.info(
                "transactional id %s: markers of %d partitions, such as %s, are not written yet: "
                "%s. This broker tries again until they are",
                ending.effect.transactional_id,
                len(partitions),
                next(iter(partitions)),
                reason,
            )
        ending.failures += 1
        ending.waiting.extend(partitions)
        if ending.timer is None:
            delay_s = min(_RETRY_S * 2 ** min(ending.failures - 1, 10), _MAX_RETRY_S)
            ending.timer = asyncio.get_running_loop().call_later(delay_s, self._retry_now, ending)

    def _retry_all(self, endings: Iterable[_Ending]) -> None:
        for ending in endings:
            self._retry_now(ending)

    async def _retry_slices(self, endings: Sequence[_Ending]) -> None:
        for start in range(0, len(endings), MAX_MARKERS_PER_REQUEST):
            self._retry_all(endings[start : start + MAX_MARKERS_PER_REQUEST])
            await asyncio.sleep(0)

    def _retry_now(self, ending: _Ending) -> None:
        ending.cancel_timer()
        waiting, ending.waiting = ending.waiting, []
        if waiting and self._is_current(ending):
            self._distribute(ending, waiting)


def _without_unneeded(
    ending: _Ending, failed: dict[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """Return the failures after which a marker must be sent again."""
    unneeded = [partition for partition, code in failed.items() if code in _UNNEEDED]
    if unneeded:
        logger.warning(
            "transactional id %s: %d partitions, such as %s, refuse the marker of producer %d, "
            "epoch %d with %s; they have no transaction of that epoch",
            ending.effect.transactional_id,
            len(unneeded),
            unneeded[0],
            ending.effect.producer_id,
            ending.effect.producer_epoch,
            failed[unneeded[0]].name,
        )
    return {partition: code for partition, code in failed.items() if code not in _UNNEEDED}
