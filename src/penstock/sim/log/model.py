"""Checks a recovered log against what was appended to it and reported synced (rules 1, 4, 6, 15,
20, 21).

It reads as a client does: whole batches, with their checksums verified.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.log.log import Log
from penstock.log.producers.replay import end_marker
from penstock.log.producers.state import ProducerStates
from penstock.records.batch import BatchHeader, batches, crc_matches, read_header
from penstock.sim.harness import InvariantViolated

# Where the part of a batch that its CRC covers begins. Base offset, length, leader epoch, magic and
# the CRC itself are before it.
_COVERED_FROM = 21


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class LogModel:
    """The expected content of one log."""

    topic_id: UUID
    history: list[Batch] = field(default_factory=list)
    # Every offset below this was reported synced.
    synced: int = 0
    # An append or a truncation in progress. If a crash interrupts it, both outcomes are correct.
    appending: bytearray | None = None
    truncating: bool = False
    # The highest offset that log start was advanced to.
    highest_start: int = 0
    # The highest high watermark that a checkpoint may list.
    highest_watermark: int = 0

    @property
    def end_offset(self) -> int:
        return self.history[-1].end_offset if self.history else 0

    def appended(self, data: bytes) -> None:
        self.history += [
            _batch(header, data[position : position + header.size])
            for position, header in batches(data)
        ]

    def truncated(self, offset: int) -> None:
        self.history = [batch for batch in self.history if batch.end_offset <= offset]

    def check_recovered(self, log: Log, *, all_survives: bool) -> None:
        """Check a log after a crash: it holds a prefix of what was appended, and at least what was
        synced. The model then takes over what the log holds."""
        recovered = read_all(log)
        if log.start_offset > self.highest_start:
            raise InvariantViolated(
                f"the log starts at {log.start_offset}, but its start was advanced only to "
                f"{self.highest_start}"
            )
        expected = [batch for batch in self.history if batch.end_offset > log.start_offset]
        if self.appending is not None and len(recovered) > len(expected):
            expected.append(_batch(read_header(self.appending), bytes(self.appending)))
        if recovered != expected[: len(recovered)]:
            wrong = next(
                index
                for index, batch in enumerate(recovered)
                if index >= len(expected) or batch != expected[index]
            )
            raise InvariantViolated(
                f"batch {wrong} is {_brief(recovered, wrong)}, but {_brief(expected, wrong)} was "
                "appended"
            )
        if log.end_offset < self.synced:
            raise InvariantViolated(
                f"offsets below {self.synced} were reported synced (rule 1), but the log "
                f"ends at {log.end_offset}"
            )
        if all_survives and not self.truncating and log.end_offset < self.end_offset:
            raise InvariantViolated(
                f"only the process was killed, but the log ends at {log.end_offset}, not at "
                f"{self.end_offset}"
            )
        self._check_epochs(log, recovered)
        self.history = [
            batch for batch in self.history if batch.end_offset <= log.start_offset
        ] + recovered
        self._check_producers(log)
        self._check_aborted(log)
        self.appending, self.truncating = None, False

    def check_high_watermark(self, high_watermark: int) -> None:
        """Check what a checkpoint lists: with the high watermark of a deleted log of the same name,
        uncommitted records would look committed (rule 7)."""
        if high_watermark > self.highest_watermark:
            raise InvariantViolated(
                f"the checkpoint lists the high watermark {high_watermark}, but it was at most "
                f"{self.highest_watermark}"
            )

    def _check_epochs(self, log: Log, recovered: list[Batch]) -> None:
        """Check the leader epoch cache. A crash may undo an advance of the log start but not the
        matching trim of the cache, so epochs may be missing at the start."""
        known_from = log.epochs.entries[0].start_offset if log.epochs.entries else log.end_offset
        for batch in (batch for batch in recovered if batch.base_offset >= known_from):
            if log.epochs.epoch_at(batch.base_offset) != batch.epoch:
                raise InvariantViolated(
                    f"the batch at {batch.base_offset} has epoch {batch.epoch}, but the log's "
                    f"epochs are {log.epochs.entries}"
                )

    def _check_producers(self, log: Log) -> None:
        """Check that the producer state equals a replay of the batches (rule 4). State of deleted
        batches may be missing."""
        replayed = ProducerStates()
        for batch in (
            batch for batch in self.history if batch.base_offset >= log.segments[0].base_offset
        ):
            header = read_header(batch.data)
            replayed.apply(header, end_marker(header, batch.data) if header.is_control else None)
        for producer_id, producer in replayed.producers.items():
            known = log.producers.producers.get(producer_id)
            transaction_missing = (
                producer.txn_first_offset is not None
                and known is not None
                and known.txn_first_offset is None
            )
            if (
                known is None
                or transaction_missing
                or (producer.batches and known.last_sequence != producer.last_sequence)
            ):
                raise InvariantViolated(
                    f"the state of producer {producer_id} is {known}, but a replay of its batches "
                    f"gives {producer}"
                )

    def _check_aborted(self, log: Log) -> None:
        """Check the indexes of aborted transactions against a replay (rule 15). A transaction may
        have begun in a segment that was deleted."""
        first_offset = log.segments[0].base_offset
        started: dict[int, int] = {}
        # Producer id and offset of the marker -> the first offset.
        replayed: dict[tuple[int, int], int] = {}
        for batch in (batch for batch in self.history if batch.base_offset >= first_offset):
            header = read_header(batch.data)
            producer = header.producer_id
            if header.is_control:
                start, marker = started.pop(producer, None), end_marker(header, batch.data)
                if start is not None and marker is not None and not marker.committed:
                    replayed[producer, batch.base_offset] = start
            elif header.is_transactional:
                started.setdefault(producer, batch.base_offset)
        indexed = {
            (txn.producer_id, txn.last_offset): txn.first_offset
            for txn in log.aborted_transactions(first_offset, log.end_offset)
        }
        wrong = [key for key, start in replayed.items() if indexed.get(key, start + 1) > start]
        wrong += [
            key for key, start in indexed.items() if key not in replayed and start >= first_offset
        ]
        if wrong:
            raise InvariantViolated(
                f"the indexes have the aborted transactions {indexed}, but a replay gives "
                f"{replayed}: {wrong}"
            )

    def check_damaged(self, log: Log) -> None:
        """Check a log after a flipped bit: a reader that verifies CRCs accepts only batches that
        were appended (rule 20). Batches may be lost or refused."""
        written = {batch.data[_COVERED_FROM:] for batch in self.history} | {
            bytes(self.appending or b"")[_COVERED_FROM:]
        }
        offset = log.start_offset
        while offset < log.end_offset:
            try:
                part = log.read(offset, 1, below=log.end_offset)
                data = b"" if part is None else part.read()
                accepted = [
                    (header, data[position : position + header.size])
                    for position, header in batches(data)
                    if crc_matches(data, position, header)
                ]
            except KafkaError as error:
                if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE):
                    raise
                return
            for header, batch in accepted:
                if batch[_COVERED_FROM:] not in written:
                    raise InvariantViolated(
                        f"the batch at offset {header.base_offset} was never appended (rule 20)"
                    )
            if not accepted or accepted[-1][0].next_offset <= offset:
                return
            offset = accepted[-1][0].next_offset


def read_all(log: Log) -> list[Batch]:
    """Read a log from start to end in small reads, and check each batch."""
    result: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, 300, below=log.end_offset)
        if part is None:
            raise InvariantViolated(
                f"a read at offset {offset} returned nothing, but the log ends at {log.end_offset}"
            )
        data = part.read()
        whole = [
            (header, data[position : position + header.size]) for position, header in batches(data)
        ]
        for header, batch in whole:
            if not crc_matches(batch, 0, header):
                raise InvariantViolated(
                    f"the batch at {header.base_offset} has a wrong checksum (rule 20)"
                )
            if result and header.base_offset != result[-1].end_offset:
                raise InvariantViolated(
                    f"offset {header.base_offset} follows {result[-1].end_offset - 1} (rule 6)"
                )
            result.append(_batch(header, batch))
        offset = result[-1].end_offset
    return result


def _batch(header: BatchHeader, data: bytes) -> Batch:
    return Batch(header.base_offset, header.next_offset, header.leader_epoch, data)


def _brief(log: list[Batch], index: int) -> str:
    if index >= len(log):
        return "nothing"
    return f"{log[index].base_offset}..{log[index].end_offset} of epoch {log[index].epoch}"
