"""Laws of transactions over random histories: clients of both protocols compete for transactional
ids, requests are lost and arrive twice, transactions time out, the coordinator dies before a step
is committed, epochs are exhausted, and transaction.version changes.

- The epoch of a producer id never decreases.
- A Complete record follows only a Prepare record of the same outcome whose markers were written.
- No effect leaves without a committed Prepare record.
- An EndTxn v5 never ends a transaction that began after it was sent.
- No transaction is ongoing after its timeout, except with two-phase commit.
- Two clients never have the same producer.
- The log restores the state.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.coordinator.runtime.step import Step
from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID
from penstock.coordinator.transactions.records import decode, record
from penstock.coordinator.transactions.table import WriteMarkers
from penstock.coordinator.transactions.transaction import (
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
    TransactionState,
)
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.protocol.messages.end_txn import EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.coordinator.transactions.transaction_world import (
    NO_PRODUCER,
    WALL_MS,
    World,
    code,
    durable_state,
    producer_of,
)

S = TransactionState
NAMES = ("one", "two")
TIMEOUT_MS = 1_000
CLIENTS = 4  # two for each transactional id

clients = st.integers(0, CLIENTS - 1)
# One step in five is lost with the coordinator.
fates = st.sampled_from([False, False, False, False, True])

FOLLOWS: dict[S | None, set[S | None]] = {
    S.EMPTY: {None, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.ONGOING: {S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.PREPARE_COMMIT: {S.ONGOING},
    S.PREPARE_ABORT: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
    S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    None: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
}


class Crash(Exception):
    """The coordinator has died before a step was committed."""


class FaultyWorld(World):
    """`dies` loses the next step that writes: its records, replies and effects."""

    def __init__(self) -> None:
        self.dies = False
        super().__init__(two_phase_commit=True)

    def take(self, step: Step[WriteMarkers]) -> Step[WriteMarkers]:
        if self.dies and step.writes:
            self.dies = False
            self.reload()
            raise Crash
        super().take(step)
        self._check_effects(step)
        return step

    def _check_effects(self, step: Step[WriteMarkers]) -> None:
        for effect in step.effects:
            last = [t for name, t in map(decode, self.log) if name == effect.transactional_id][-1]
            assert last is not None
            assert last.is_prepared
            assert (last.producer_id, last.producer_epoch) == (
                effect.producer_id,
                effect.producer_epoch,
            )
            assert last.is_commit == effect.commit
            assert effect.coordinator_epoch == self.coordinator_epoch


class Client:
    """What a producer knows of itself. `ending` is the outcome that it has asked for."""

    def __init__(self, index: int) -> None:
        self.name = NAMES[index % 2]
        self.is_new_protocol = index < 3
        self.producer: Producer | None = None
        self.ending: bool | None = None
        self.keeps = False


class Ending(NamedTuple):
    """An EndTxn v5 that was sent, and when."""

    name: str
    producer: Producer
    commit: bool
    sent_ms: int


class TransactionHistories(RuleBasedStateMachine):
    @initialize(epochs=st.lists(st.sampled_from([-1, 3, 32_760, 32_764]), min_size=2, max_size=2))
    def start(self, epochs: list[int]) -> None:
        self.world = FaultyWorld()
        self.clients = [Client(index) for index in range(CLIENTS)]
        self.endings: list[Ending] = []
        # Producers that clients have got by an initialization of their own.
        self.assigned: set[Producer] = set()
        # Prepare records, by their position in the log, whose markers are written.
        self.marked: list[WriteMarkers] = []
        for name, epoch in zip(NAMES, epochs, strict=True):
            if epoch >= 0:
                used = Transaction(name, self.world.new_producer_id(), epoch, TIMEOUT_MS, WALL_MS)
                self.world.log.append(record(used, 2)[0])
        self.world.reload()

    def attempt(self, dies: bool, request: Callable[[], object]) -> object | None:
        """Send a request. Return None if the coordinator dies before the reply."""
        self.world.now_ms += 1
        self.world.wait(0)
        self.world.dies = dies
        try:
            return request()
        except Crash:
            return None
        finally:
            self.world.dies = False

    # Clients

    @rule(index=clients, own=st.booleans(), two_phase=st.booleans(), keep=st.booleans(), dies=fates)
    def init(self, index: int, own: bool, two_phase: bool, keep: bool, dies: bool) -> None:
        client = self.clients[index]
        passed = client.producer if own and client.producer is not None else NO_PRODUCER
        keep = keep and self.world.settings.transaction_version == 2
        response = self.attempt(
            dies,
            lambda: self.world.init(
                passed,
                name=client.name,
                timeout_ms=TIMEOUT_MS,
                two_phase=two_phase,
                keep=keep,
            ),
        )
        if response is None:
            return
        assert isinstance(response, InitProducerIdResponse)
        if code(response) is ErrorCode.NONE:
            producer = producer_of(response)
            assert producer.epoch < MAX_EPOCH
            if passed == NO_PRODUCER:
                assert producer not in self.assigned
            self.assigned.add(producer)
            client.producer, client.ending = producer, None
            client.keeps = response.ongoing_txn_producer_id != -1
            assert client.keeps == (self.world.state(client.name) is S.ONGOING)
        elif code(response) is ErrorCode.PRODUCER_FENCED:
            assert passed != NO_PRODUCER
            client.producer = None
        else:
            assert code(response) is ErrorCode.CONCURRENT_TRANSACTIONS

    @rule(index=clients, partition=st.integers(0, 3), dies=fates)
    def add(self, index: int, partition: int, dies: bool) -> None:
        client = self.clients[index]
        producer = client.producer
        if producer is None or client.ending is not None:
            return
        added = TopicPartition("t", partition)
        result = self.attempt(
            dies,
            lambda: self.world.add(
                producer, added, name=client.name, version=2 if client.is_new_protocol else 0
            ),
        )
        if result is ErrorCode.NONE:
            assert not client.keeps
            assert added.partition in self.world.of(client.name).partitions["t"]
        elif result in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            client.producer = None
        else:
            assert result in (
                None,
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.INVALID_TXN_STATE,
            )

    @rule(index=clients, commit=st.booleans(), lost=st.booleans(), dies=fates)
    def end(self, index: int, commit: bool, lost: bool, dies: bool) -> None:
        """End the transaction, or repeat that. A client knows no more until it has a response."""
        client = self.clients[index]
        producer = client.producer
        if producer is None:
            return
        client.ending = commit if client.ending is None else client.ending
        outcome, version = client.ending, 5 if client.is_new_protocol else 4
        if version == 5:
            sent = Ending(client.name, producer, outcome, self.world.now_ms)
            self.endings.append(sent)
        if lost:
            return
        response = self.attempt(
            dies,
            lambda: self.world.end(producer, outcome, name=client.name, version=version),
        )
        if response is None:
            return
        assert isinstance(response, EndTxnResponse)
        match code(response):
            case ErrorCode.NONE:
                ended = self.world.of(client.name)
                assert ended.is_prepared or ended.is_complete
                assert ended.is_commit == outcome
                client.ending, client.keeps = None, False
                if version == 5:
                    client.producer = producer_of(response)
                    assert client.producer == ended.producer
                    assert client.producer.epoch < MAX_EPOCH or not client.is_new_protocol
            case ErrorCode.CONCURRENT_TRANSACTIONS:
                pass
            case _:
                client.producer = client.ending = None

    @rule(data=st.data(), dies=fates)
    def arrive_again(self, data: st.DataObject, dies: bool) -> None:
        """A request that was sent before arrives late, perhaps for the second time."""
        if not self.endings:
            return
        ending = data.draw(st.sampled_from(self.endings))
        before = self.world.machine.table.by_id.get(ending.name)
        self.attempt(dies, lambda: self.world.end(ending.producer, ending.commit, name=ending.name))
        after = self.world.machine.table.by_id.get(ending.name)
        if before is not None and before.is_ongoing and after is not None and after.is_prepared:
            assert before.start_ms <= WALL_MS + ending.sent_ms

    @rule(index=clients, times=st.integers(1, 6), commit=st.booleans())
    def proceed(self, index: int, times: int, commit: bool) -> None:
        """Do what a client does next, without faults."""
        client = self.clients[index]
        for _ in range(times):
            self.marked.extend(self.world.markers)
            self.world.write_markers()
            transaction = self.world.machine.table.by_id.get(client.name)
            if client.producer is None or transaction is None:
                self.init(index, own=False, two_phase=False, keep=False, dies=False)
            elif client.ending is None and not transaction.is_ongoing:
                self.add(index, partition=0, dies=False)
            else:
                self.end(index, commit, lost=False, dies=False)

    # The cluster

    @rule(data=st.data(), dies=fates)
    def write_some_markers(self, data: st.DataObject, dies: bool) -> None:
        if not self.world.markers:
            return
        effect = data.draw(st.sampled_from(self.world.markers))
        self.marked.append(effect)

        def written() -> None:
            self.world.markers.remove(effect)
            self.world.take(self.world.machine.markers_written((effect,), self.world.now))

        self.attempt(dies, written)

    @rule(data=st.data())
    def report_old_markers(self, data: st.DataObject) -> None:
        """Markers of an earlier transaction, or of an earlier coordinator, are reported late."""
        table, effects = self.world.machine.table, self.world.effects
        old = [e for e in effects if table.markers.get(e.transactional_id) is not e]
        if old:
            effect = data.draw(st.sampled_from(old))
            step = self.world.machine.markers_written((effect,), self.world.now)
            assert not step.writes

    @rule(ms=st.sampled_from([1, 100, 700, 1_000, 5_000]), dies=fates)
    def wait(self, ms: int, dies: bool) -> None:
        self.attempt(dies, lambda: self.world.wait(ms))
        self.world.wait(0)

    @rule()
    def expire(self) -> None:
        """Only prepared transactions and those of two-phase commit outlive a month."""
        before = dict(self.world.machine.table.by_id)
        self.world.wait(31 * 24 * 3_600_000)
        after = self.world.machine.table.by_id
        assert all(t.is_prepared or t.timeout_ms == NO_TIMEOUT_MS for t in after.values())
        for name, transaction in before.items():
            if transaction.is_prepared or (
                transaction.is_ongoing and transaction.timeout_ms == NO_TIMEOUT_MS
            ):
                assert after[name] == transaction

    @rule()
    def move(self) -> None:
        self.world.reload()

    @rule(version=st.sampled_from([2, 2, 1, 0]))
    def change_version(self, version: int) -> None:
        self.world.change_settings(transaction_version=version)

    # Laws

    @invariant()
    def the_log_restores_the_state(self) -> None:
        if hasattr(self, "world"):
            assert durable_state(self.world.replayed()) == durable_state(self.world.machine)

    @invariant()
    def nothing_outlives_its_timeout(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.wait(0)
        table = self.world.machine.table
        for name, transaction in table.by_id.items():
            due_ms = transaction.due_ms
            assert due_ms is None or due_ms > self.world.now.wall_ms
            assert (table.deadlines.get((name,)) is None) == (due_ms is None)
            assert (name in table.markers) == transaction.is_prepared
        in_progress = {id(effect) for effect in self.world.markers}
        done = {id(effect) for effect in self.marked}
        assert {id(effect) for effect in table.markers.values()} <= in_progress | done

    @invariant()
    def states_follow_each_other(self) -> None:
        if not hasattr(self, "world"):
            return
        for name in NAMES:
            history = self.history(name)
            states = [None if t is None else t.state for t in history]
            for before, after in pairwise([None, *states]):
                assert before in FOLLOWS[after], f"{after} follows {before}"
            for before_t, after_t in pairwise(history):
                if after_t is not None and after_t.is_complete:
                    self.check_completed(before_t, after_t)

    def check_completed(self, prepared: Transaction | None, complete: Transaction) -> None:
        assert prepared is not None
        assert prepared.is_prepared
        assert prepared.is_commit == complete.is_commit
        assert complete.producer == prepared.producer
        if prepared.partitions:
            assert any(
                effect.transactional_id == prepared.transactional_id
                and effect.producer_id == prepared.producer_id
                and effect.producer_epoch == prepared.producer_epoch
                and effect.commit == prepared.is_commit
                and {p.partition for p in effect.partitions} == set(prepared.partitions["t"])
                for effect in self.marked
            )

    @invariant()
    def epochs_never_decrease(self) -> None:
        if not hasattr(self, "world"):
            return
        for name in NAMES:
            of_records: dict[int, int] = {}
            of_clients: dict[int, int] = {}
            for transaction in filter(None, self.history(name)):
                records = Producer(transaction.producer_id, transaction.producer_epoch)
                for highest, producer in (of_records, records), (of_clients, transaction.producer):
                    assert producer.epoch >= highest.get(producer.id, -1)
                    highest[producer.id] = producer.epoch

    def history(self, name: str) -> list[Transaction | None]:
        return [t for logged, t in map(decode, self.world.log) if logged == name]

    def teardown(self) -> None:
        """Once markers are written, a new client of each id can run a transaction."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.change_settings(transaction_version=2)
        for name in NAMES:
            for _ in range(3):
                self.marked.extend(world.markers)
                world.write_markers()
                response = world.init(name=name)
                if code(response) is ErrorCode.NONE:
                    break
            assert code(response) is ErrorCode.NONE
            world.transaction(producer_of(response), name=name)
            assert world.state(name) is S.COMPLETE_COMMIT


TestTransactionHistories = TransactionHistories.TestCase
TestTransactionHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_lost_step_leaves_no_reply() -> None:
    """The faults of these histories happen."""
    world = FaultyWorld()
    world.dies = True
    try:
        world.new_producer()
    except Crash:
        assert world.machine.is_empty
        assert not any(response is not NEEDS_PRODUCER_ID for response in world.replies.values())
    else:
        raise AssertionError("the coordinator survived")
