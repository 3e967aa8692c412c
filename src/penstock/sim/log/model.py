"""What a log must hold after a crash, by what was appended to it and reported synced (invariants 1,
6, 20, 21, 22).

Judges by reading as a client does: whole batches, checksums checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ErrorCode, KafkaError
from penstock.log.log import Log
from penstock.log.producers.replay import end_marker
from penstock.log.producers.state import ProducerStates
from penstock.records.batch import BatchHeader, batches, crc_matches, read_header

# Of a batch, the part that its CRC covers: base offset, length, leader epoch, magic and the CRC
# itself come before it.
_COVERED_FROM = 21


class Broken(AssertionError):
    """An invariant does not hold."""


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class LogModel:
    """One partition as its client knows it."""

    history: list[Batch] = field(default_factory=list)
    # Everything below was reported to be on disk.
    synced: int = 0
    # An append or a truncation is under way. If a crash comes before it is done, both outcomes are
    # right.
    appending: bytearray | None = None
    truncating: bool = False
    highest_start: int = 0

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
        """After a crash: a prefix of what was appended, with at least what was synced. From here
        on, what is there is what was appended."""
        found = read_all(log)
        if log.start_offset > self.highest_start:
            raise Broken(
                f"the log starts at {log.start_offset}, but no more than {self.highest_start} was "
                "asked for"
            )
        expected = [batch for batch in self.history if batch.end_offset > log.start_offset]
        if self.appending is not None and len(found) > len(expected):
            expected.append(_batch(read_header(self.appending), bytes(self.appending)))
        if found != expected[: len(found)]:
            wrong = next(
                n for n in range(len(found)) if n >= len(expected) or found[n] != expected[n]
            )
            raise Broken(
                f"batch {wrong} is {_brief(found, wrong)}, but {_brief(expected, wrong)} was "
                "appended"
            )
        if log.end_offset < self.synced:
            raise Broken(
                f"offsets below {self.synced} were reported synced (invariant 1), but the log "
                f"ends at {log.end_offset}"
            )
        if all_survives and not self.truncating and log.end_offset < self.end_offset:
            raise Broken(
                f"only the process died, but the log ends at {log.end_offset}, not at "
                f"{self.end_offset}"
            )
        self._check_epochs(log, found)
        self.history = [
            batch for batch in self.history if batch.end_offset <= log.start_offset
        ] + found
        self._check_producers(log)
        self.appending, self.truncating = None, False

    def _check_epochs(self, log: Log, found: list[Batch]) -> None:
        """Of records whose deletion was forgotten in the crash the epochs may be forgotten too."""
        known_from = log.epochs.entries[0].start_offset if log.epochs.entries else log.end_offset
        for batch in (batch for batch in found if batch.base_offset >= known_from):
            if log.epochs.epoch_at(batch.base_offset) != batch.epoch:
                raise Broken(
                    f"the batch at {batch.base_offset} has epoch {batch.epoch}, but the log's "
                    f"epochs are {log.epochs.entries}"
                )

    def _check_producers(self, log: Log) -> None:
        """What the log knows of its producers is what its batches say (invariant 4); what deleted
        ones said may be forgotten."""
        said = ProducerStates()
        for batch in (
            batch for batch in self.history if batch.base_offset >= log.segments[0].base_offset
        ):
            header = read_header(batch.data)
            said.apply(header, end_marker(header, batch.data) if header.is_control else None)
        for producer_id, producer in said.producers.items():
            known = log.producers.producers.get(producer_id)
            open_txn_forgotten = (
                producer.txn_first_offset is not None
                and known is not None
                and known.txn_first_offset is None
            )
            if (
                known is None
                or open_txn_forgotten
                or (producer.batches and known.last_sequence != producer.last_sequence)
            ):
                raise Broken(
                    f"the log knows {known} of producer {producer_id}, but its batches say "
                    f"{producer}"
                )

    def check_damaged(self, log: Log) -> None:
        """After a bit was flipped: what a reader that checks the CRC accepts is what was appended,
        whatever else is lost or refused."""
        written = {batch.data[_COVERED_FROM:] for batch in self.history} | {
            bytes(self.appending or b"")[_COVERED_FROM:]
        }
        offset = log.start_offset
        while offset < log.end_offset:
            try:
                part = log.read(offset, 1, below=log.end_offset)
                data = b"" if part is None else part.read()
                accepted = [
                    (header, data[p : p + header.size])
                    for p, header in batches(data)
                    if crc_matches(data, p, header)
                ]
            except KafkaError as error:
                if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE):
                    raise
                return
            for header, batch in accepted:
                if batch[_COVERED_FROM:] not in written:
                    raise Broken(
                        f"a batch that nobody wrote was accepted at offset {header.base_offset} "
                        "(invariant 20)"
                    )
            if not accepted or accepted[-1][0].next_offset <= offset:
                return
            offset = accepted[-1][0].next_offset


def read_all(log: Log) -> list[Batch]:
    """From the log's start to its end, one read after the other, each checked."""
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, 300, below=log.end_offset)
        if part is None:
            raise Broken(
                f"offset {offset} is below the log's end {log.end_offset}, but nothing is read "
                "there"
            )
        data = part.read()
        whole = [
            (header, data[position : position + header.size]) for position, header in batches(data)
        ]
        for header, batch in whole:
            if not crc_matches(batch, 0, header):
                raise Broken(
                    f"the batch at {header.base_offset} has a wrong checksum (invariant 20)"
                )
            if found and header.base_offset != found[-1].end_offset:
                raise Broken(
                    f"offset {header.base_offset} follows {found[-1].end_offset - 1} (invariant 6)"
                )
            found.append(_batch(header, batch))
        offset = found[-1].end_offset
    return found


def _batch(header: BatchHeader, data: bytes) -> Batch:
    return Batch(header.base_offset, header.next_offset, header.leader_epoch, data)


def _brief(some: list[Batch], number: int) -> str:
    return (
        f"{some[number].base_offset}..{some[number].end_offset} of epoch {some[number].epoch}"
        if number < len(some)
        else "nothing"
    )
