"""A key-value store as a replicated state machine: the smallest machine that uses everything that
the shard runtime offers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from penstock.coordinator.runtime.step import (
    MARKER_RECORD,
    PLAIN,
    Batch,
    Now,
    Record,
    Reply,
    Step,
    Ticket,
    Undo,
    marker_batch,
    transactional_batch,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage

KEYS_PER_STEP = 3


class KvMachine:
    """Puts in a transaction are pending until its marker. `watchers` are parked requests, which the
    next put replies to: soft state."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.pending: dict[int, dict[bytes, bytes]] = {}
        self.watchers: list[Ticket] = []
        self.replayed: list[tuple[Record, Batch]] = []
        self.images: list[MetadataImage] = []
        self.expire_at_ms: int | None = None
        self.loaded_at: Now | None = None
        # The value of a record that the next due step and the next image write.
        self.due_value: bytes | None = None

    # The StateMachine protocol

    def replay(self, record: Record, batch: Batch, /) -> None:
        self.replayed.append((record, batch))
        if batch.marker is not None:
            ended = self.pending.pop(batch.producer_id, {})
            if batch.marker.commit:
                self.values.update(ended)
        elif batch.transactional:
            self.pending.setdefault(batch.producer_id, {})[record.key] = record.value or b""
        elif record.value is None:
            self.values.pop(record.key, None)
        else:
            self.values[record.key] = record.value

    def loaded(self, now: Now, /) -> Step[bytes]:
        self.loaded_at = now
        return Step()

    def image_changed(
        self, image: MetadataImage, _deleted_topics: Collection[str], _now: Now, /
    ) -> Step[bytes]:
        self.images.append(image)
        return self._write_due_value()

    def _write_due_value(self) -> Step[bytes]:
        """Write it once, and reply to the watchers: the step may be refused."""
        if self.due_value is None:
            return Step()
        value, self.due_value = self.due_value, None
        replies = tuple(Reply(watcher, "due") for watcher in self.watchers)
        return replace(self._step([Record(b"due", value)]), replies=replies)

    def run_due(self, now: Now, /) -> Step[bytes]:
        """Expire a few keys."""
        if self.expire_at_ms is None or now.ms < self.expire_at_ms:
            return Step()
        if self.due_value is not None:
            return self._write_due_value()
        keys = sorted(self.values)[:KEYS_PER_STEP]
        step = self._step([Record(key, None) for key in keys])
        if not self.values:
            self.expire_at_ms = None
        return step

    def next_deadline_ms(self) -> int | None:
        return self.expire_at_ms

    @property
    def is_empty(self) -> bool:
        return not self.values

    # Requests

    def put(self, records: Iterable[tuple[bytes, bytes]], ticket: Ticket, _now: Now) -> Step[bytes]:
        """The effects are the keys."""
        return self._step([Record(key, value) for key, value in records], ticket)

    def put_in_transaction(
        self, producer_id: int, epoch: int, key: bytes, value: bytes, ticket: Ticket, _now: Now
    ) -> Step[bytes]:
        batch = transactional_batch(producer_id, epoch)
        return self._step([Record(key, value)], ticket, batch)

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, ticket: Ticket, _now: Now
    ) -> Step[bytes]:
        batch = marker_batch(producer_id, epoch, commit=commit, coordinator_epoch=1)
        step = self._step([MARKER_RECORD], ticket, batch)
        return Step((), step.replies, step.effects, batch, undo=step.undo)

    def watch(self, ticket: Ticket, _now: Now) -> Step[bytes]:
        self.watchers.append(ticket)
        return Step()

    def refuse(self, _ticket: Ticket, _now: Now) -> Step[bytes]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "refused by the machine")

    def fail(self, _ticket: Ticket, _now: Now) -> Step[bytes]:
        self.values[b"half"] = b"changed"
        raise RuntimeError("a bug of the machine")

    def expire_at(self, due_ms: int, ticket: Ticket, _now: Now) -> Step[bytes]:
        self.expire_at_ms = due_ms
        return Step(replies=(Reply(ticket, "armed"),))

    def _step(
        self, records: list[Record], ticket: Ticket | None = None, batch: Batch = PLAIN
    ) -> Step[bytes]:
        undo = Undo()
        undo.save(vars(self), "watchers")
        undo.save(vars(self), "pending")
        self.pending = {producer: dict(values) for producer, values in self.pending.items()}
        for record in records:
            undo.save(self.values, record.key)
            self.replay(record, batch)
        tickets, self.watchers = self.watchers if ticket is not None else [], []
        own = () if ticket is None else (Reply(ticket, "ok"),)
        return Step(
            records=tuple(records),
            replies=(*own, *(Reply(watcher, "changed") for watcher in tickets)),
            effects=tuple(record.key for record in records),
            batch=batch,
            undo=undo,
        )
