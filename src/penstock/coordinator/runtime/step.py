"""A step of a replicated state machine: what it writes, what it replies, and how it is reverted.
PURE.

Laws:
- A step is written as one batch, or not at all. The runner builds the batch and checks its size
  first. A batch that the topic does not take is refused to the sender of the request alone.
- A machine replays a record into its state as soon as the step writes it, with the code that also
  replays the log, so that the rest of the decision sees it. Soft state changes in place.
- Everything that a step changes is noted in its `Undo`. The runner reverts a refused step in the
  same synchronous run in which it was decided, so that no other request sees the change.
- A step that was appended is never reverted. If the append itself fails, the state is discarded and
  read from the log again.
- Replies and effects leave when the step's records, and everything that the shard appended before
  them, are committed. An effect that left earlier could tear a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, NewType, TypeVar

from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.limits import BATCH_HEADER_BYTES

K = TypeVar("K")
V = TypeVar("V")
E_co = TypeVar("E_co", covariant=True)

# A request that waits for its reply, as the runner numbers it.
Ticket = NewType("Ticket", int)

# The most that a record adds to a batch besides its key and value.
RECORD_OVERHEAD_BYTES = 32


class Now(NamedTuple):
    """The time of a step: `ms` for deadlines, `wall_ms` for what records hold."""

    ms: int
    wall_ms: int


class Record(NamedTuple):
    """A record of an internal topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Marker(NamedTuple):
    """The end of a transaction, as a control batch records it."""

    commit: bool
    coordinator_epoch: int


class Batch(NamedTuple):
    """What a record's batch says: the step declares it, and `replay` receives it.

    A batch with a marker is a control batch. It holds one record, which replays as `MARKER_RECORD`.
    """

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    transactional: bool = False
    marker: Marker | None = None

    @property
    def control(self) -> bool:
        return self.marker is not None


PLAIN = Batch()
MARKER_RECORD = Record(b"", None)


def transactional_batch(producer_id: int, producer_epoch: int) -> Batch:
    return Batch(producer_id, producer_epoch, transactional=True)


def marker_batch(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
) -> Batch:
    return Batch(producer_id, producer_epoch, True, Marker(commit, coordinator_epoch))


class Reply(NamedTuple):
    ticket: Ticket
    response: object


class Undo:
    """Reverts what one step changed, in reverse order."""

    __slots__ = ("_actions", "_saved")

    def __init__(self) -> None:
        self._actions: list[Callable[[], object]] = []
        self._saved: set[Hashable] = set()

    def add(self, action: Callable[[], object]) -> None:
        self._actions.append(action)

    def first(self, key: Hashable) -> bool:
        """Return True for the first call with this key: what it stands for must be saved now."""
        if key in self._saved:
            return False
        self._saved.add(key)
        return True

    def save(self, mapping: MutableMapping[K, V], key: K) -> None:
        """Restore the mapping's present value of this key, or its absence."""
        if key in mapping:
            self._actions.append(partial(mapping.__setitem__, key, mapping[key]))
        else:
            self._actions.append(partial(mapping.pop, key, None))

    def revert(self) -> None:
        while self._actions:
            self._actions.pop()()
        self._saved.clear()


@dataclass(frozen=True, slots=True)
class Step(Generic[E_co]):
    """The outcome of one decision. The parameter is the type of the machine's effects.

    `immediate` replies do not wait for the commit of earlier steps: they say nothing that a lost
    record could contradict. `log_lines` are for the node's log, since pure rooms write none.
    """

    records: tuple[Record, ...] = ()
    replies: tuple[Reply, ...] = ()
    effects: tuple[E_co, ...] = ()
    batch: Batch = PLAIN
    log_lines: tuple[str, ...] = ()
    immediate: bool = False
    undo: Undo = field(default_factory=Undo)

    @property
    def writes(self) -> bool:
        return bool(self.records) or self.batch.control


def batch_bytes(records: tuple[Record, ...] | list[Record]) -> int:
    """Return an upper bound of the size of an uncompressed batch of these records."""
    return BATCH_HEADER_BYTES + sum(
        len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records
    )
