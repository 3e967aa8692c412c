"""The interface between a replicated state machine and its runner (`node/shards/shard.py`). PURE.

A machine holds the state of one partition of an internal topic on the broker that leads it. Its
durable state changes only by replaying records; soft state (requests that wait, a rebalance in
progress, deadlines) is lost when the partition moves. Unbounded work, such as expiry, is cut into
steps of bounded size: `run_due` does one of them, and `next_deadline_ms` says that more is due.

Requests are methods of the concrete machine. They take the request, a ticket and `Now`, and return
a `Step`. A method that raises KafkaError has changed nothing; the sender gets the error. Any other
exception discards the machine, and its successor is loaded from the log.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

from penstock.coordinator.runtime.step import Batch, Now, Record, Step
from penstock.metadata.image import MetadataImage

E_co = TypeVar("E_co", covariant=True)


class StateMachine(Protocol[E_co]):
    """Until `loaded`, the runner calls nothing but `replay`. The parameter is the type of its
    effects, Never for a machine that has none."""

    def replay(self, record: Record, batch: Batch, /) -> None:
        """Apply one record of the log. The runner need not replay records that a later one of the
        same key supersedes, and may replay those of a committed transaction as plain ones, without
        the marker. ProtocolError: the record is damaged."""

    def loaded(self, now: Now, /) -> Step[E_co]:
        """The whole log has been replayed: start the deadlines."""

    def image_changed(
        self, image: MetadataImage, deleted_topics: Collection[str], now: Now, /
    ) -> Step[E_co]:
        """Take a newer image, and the names of the topics that were deleted since the last one. A
        topic that was created again is among them."""

    def run_due(self, now: Now, /) -> Step[E_co]:
        """Do one bounded piece of the work that is due; an empty step if there is none."""

    def next_deadline_ms(self) -> int | None:
        """Return when `run_due` is due next. It may be too early, never too late."""

    @property
    def is_empty(self) -> bool:
        """True if the machine has no state, so that a new image can wait for the next request."""
