"""A transaction machine with what a test needs around it: a log, a clock, tickets, producer ids and
the markers that it asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.coordinator.runtime.step import PLAIN, Now, Record, Step, Ticket
from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID, TransactionMachine
from penstock.coordinator.transactions.records import decode
from penstock.coordinator.transactions.table import TransactionSettings, WriteMarkers
from penstock.coordinator.transactions.transaction import Producer, Transaction, TransactionState
from penstock.errors import ErrorCode
from penstock.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

T = TypeVar("T")

# Wall clock time at the start of a test.
WALL_MS = 1_700_000_000_000
ID = "pay"
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

Results = dict[TopicPartition, ErrorCode]


def state_of(machine: TransactionMachine) -> object:
    """Return everything that a step may change, for comparison."""
    table, expiry = machine.table, machine._expiry
    return (
        dict(table.by_id),
        dict(table.deadlines._due),
        dict(table.markers),
        dict(table.unstarted),
        dict(machine._completions),
        (list(expiry._ids), expiry._done),
    )


def durable_state(machine: TransactionMachine) -> dict[str, Transaction]:
    """Return what a replay of the log restores: the last epoch of a client that initialized itself
    is not in the log."""
    return {
        name: transaction._replace(last_producer_epoch=NO_PRODUCER_EPOCH)
        for name, transaction in machine.table.by_id.items()
    }


class World:
    def __init__(self, settings: TransactionSettings | None = None, **changes: Any) -> None:
        self.settings = (settings or TransactionSettings())._replace(**changes)
        self.now_ms = 0
        self.wall_ms = WALL_MS
        self.log: list[Record] = []
        self.log_lines: list[str] = []
        self.replies: dict[int, object] = {}
        self.tickets = 0
        self.producer_ids = FIRST_PRODUCER_ID
        self.coordinator_epoch = 0
        # Effects whose markers have not been written yet, and all that there were.
        self.markers: list[WriteMarkers] = []
        self.effects: list[WriteMarkers] = []
        self.machine = self.new_machine()
        self.take(self.machine.loaded(self.now))

    def new_machine(self) -> TransactionMachine:
        return TransactionMachine(lambda: self.settings, self.coordinator_epoch)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms + self.now_ms)

    def take(self, step: Step[WriteMarkers]) -> Step[WriteMarkers]:
        assert not step.batch.transactional
        self.log.extend(step.records)
        self.markers.extend(step.effects)
        self.effects.extend(step.effects)
        self.log_lines.extend(step.log_lines)
        for ticket, response in step.replies:
            assert ticket not in self.replies, f"ticket {ticket} got two replies"
            self.replies[ticket] = response
        return step

    def run(self, decide: Callable[[], Step[WriteMarkers]]) -> Step[WriteMarkers]:
        """Run a step. One that writes is refused first: reverting it must change nothing."""
        before = state_of(self.machine)
        step = decide()
        if step.writes:
            step.undo.revert()
            assert state_of(self.machine) == before
            step = decide()
        return self.take(step)

    def ask(self, decide: Callable[[Ticket], Step[WriteMarkers]]) -> object:
        ticket = Ticket(self.tickets)
        self.tickets += 1
        self.run(lambda: decide(ticket))
        return self.replies[ticket]

    def change_settings(self, **changes: Any) -> None:
        self.settings = self.settings._replace(**changes)
        self.take(self.machine.image_changed(MetadataImage(), (), self.now))

    def reload(self) -> None:
        """Move the coordinator: a new machine replays the log, and effects in progress are lost."""
        self.coordinator_epoch += 1
        self.markers.clear()
        self.machine = self.replayed()
        self.take(self.machine.loaded(self.now))
        self.wait(0)

    def replayed(self) -> TransactionMachine:
        machine = self.new_machine()
        for record in self.log:
            machine.replay(record, PLAIN)
        return machine

    def wait(self, ms: int) -> None:
        """Let time pass; run due work at its time."""
        until_ms = self.now_ms + ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.take(self.machine.run_due(self.now))
        self.now_ms = until_ms

    # Requests

    def new_producer_id(self) -> int:
        self.producer_ids += 1
        return self.producer_ids - 1

    def init_request(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Send a request, as the shell does: again with a producer id if it needs one."""
        response = self.ask(
            lambda ticket: self.machine.init_producer_id(request, None, ticket, self.now)
        )
        if response is NEEDS_PRODUCER_ID:
            new_id = self.new_producer_id()
            response = self.ask(
                lambda ticket: self.machine.init_producer_id(request, new_id, ticket, self.now)
            )
        assert isinstance(response, InitProducerIdResponse)
        return response

    def init(
        self,
        producer: Producer = NO_PRODUCER,
        *,
        name: str = ID,
        timeout_ms: int = TIMEOUT_MS,
        two_phase: bool = False,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        return self.init_request(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                enable2_pc=two_phase,
                keep_prepared_txn=keep,
            )
        )

    def new_producer(
        self, *, name: str = ID, timeout_ms: int = TIMEOUT_MS, two_phase: bool = False
    ) -> Producer:
        """Initialize a producer."""
        response = self.init(name=name, timeout_ms=timeout_ms, two_phase=two_phase)
        assert response.error_code == ErrorCode.NONE
        return Producer(response.producer_id, response.producer_epoch)

    def partitions(
        self,
        producer: Producer,
        partitions: tuple[TopicPartition, ...],
        *,
        name: str = ID,
        verify_only: bool = False,
        transaction_version: int = 2,
    ) -> Results:
        response = self.ask(
            lambda ticket: self.machine.add_partitions(
                name, *producer, partitions, verify_only, transaction_version, ticket, self.now
            )
        )
        assert isinstance(response, dict)
        return response

    def add(
        self, producer: Producer, *partitions: TopicPartition, name: str = ID, version: int = 2
    ) -> ErrorCode:
        """Add partitions; return the code that all of them get."""
        asked = partitions or (A0,)
        results = self.partitions(producer, asked, name=name, transaction_version=version)
        assert results.keys() == set(asked)
        (code,) = set(results.values())
        return code

    def verify(self, producer: Producer, *partitions: TopicPartition, name: str = ID) -> Results:
        return self.partitions(producer, partitions, name=name, verify_only=True)

    def end(
        self, producer: Producer, commit: bool = True, *, name: str = ID, version: int = 5
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        response = self.ask(
            lambda ticket: self.machine.end_txn(request, version, None, ticket, self.now)
        )
        if response is NEEDS_PRODUCER_ID:
            assert version >= 5
            new_id = self.new_producer_id()
            response = self.ask(
                lambda ticket: self.machine.end_txn(request, version, new_id, ticket, self.now)
            )
        assert isinstance(response, EndTxnResponse)
        return response

    def ended(
        self, producer: Producer, commit: bool = True, *, name: str = ID, version: int = 5
    ) -> Producer:
        """End a transaction; return the producer that the client has from then on."""
        response = self.end(producer, commit, name=name, version=version)
        assert response.error_code == ErrorCode.NONE
        return producer if version < 5 else Producer(response.producer_id, response.producer_epoch)

    def write_markers(self) -> tuple[WriteMarkers, ...]:
        """Write all markers that the machine has asked for."""
        written = tuple(self.markers)
        self.markers.clear()
        before = state_of(self.machine)
        step = self.machine.markers_written(written, self.now)
        if step.writes:
            # What is written stays noted even if the step is refused.
            step.undo.revert()
            noted, self.machine._completions = self.machine._completions, {}
            assert state_of(self.machine) == before
            self.machine._completions = noted
            step = self.machine.markers_written((), self.now)
        self.take(step)
        return written

    def transaction(
        self, producer: Producer, commit: bool = True, *, name: str = ID, version: int = 5
    ) -> Producer:
        """Run a whole transaction; return the producer that the client has from then on."""
        assert self.add(producer, name=name, version=2 if version >= 5 else 0) == ErrorCode.NONE
        producer = self.ended(producer, commit, name=name, version=version)
        self.write_markers()
        return producer

    # State

    def of(self, name: str = ID) -> Transaction:
        return self.machine.table.by_id[name]

    def state(self, name: str = ID) -> TransactionState:
        return self.of(name).state

    def set_producer(self, producer: Producer, name: str = ID) -> None:
        """Pretend that the producer has come so far."""
        self.machine.table.by_id[name] = self.of(name)._replace(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            previous_producer_id=producer.id,
        )

    def written(self, name: str = ID) -> list[TransactionState | None]:
        """Return the states that were written, None for a tombstone."""
        decoded = map(decode, self.log)
        return [
            t.state if t is not None else None for decoded_id, t in decoded if decoded_id == name
        ]


def code(response: InitProducerIdResponse | EndTxnResponse) -> ErrorCode:
    return ErrorCode(response.error_code)


def producer_of(response: InitProducerIdResponse | EndTxnResponse) -> Producer:
    return Producer(response.producer_id, response.producer_epoch)
