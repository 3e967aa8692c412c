"""Observes transactions: outcomes that coordinators decide, markers that leaders append, last
stable offsets, and requests of transactions as they are sent."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.client.connection import Connection
from penstock.coordinator.transactions import ending
from penstock.ids import TopicPartition
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.node.shards.transactions import Transactions
from penstock.protocol.apis import Api
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from penstock.records.batch import CONTROL_BIT, read_header
from penstock.sim.cluster.history import History
from penstock.sim.cluster.transaction_events import (
    MarkerAppended,
    StableOffsetAdvanced,
    TransactionPrepared,
)
from penstock.sim.harness import replaced

REPLAYER = "replayer"
# The requests that can be repeated are the last so many.
_KEPT_REQUESTS = 400
_Producer = tuple[int, int]


class SentRequest(NamedTuple):
    """A request as a client or a broker has sent it."""

    request: Any
    response: type
    api: Api
    version: int
    address: str


class TransactionObserver:
    """`sent` are the last requests of transactions. `topics` are those whose last stable offsets
    are recorded."""

    def __init__(self, history: History, now: Callable[[], float], topics: tuple[str, ...]) -> None:
        self._history = history
        self._now = now
        self._topics = topics
        self.sent: deque[SentRequest] = deque(maxlen=_KEPT_REQUESTS)
        self._max_stable: dict[TopicPartition, int] = {}
        # The node of each coordinator's state machine, by its table.
        self._nodes: dict[Any, int] = {}
        self._ending = False

    def max_stable_offset(self, partition: TopicPartition) -> int:
        """Return the highest last stable offset that any leader has had."""
        return self._max_stable.get(partition, 0)

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Observe until the block ends."""
        wraps: list[tuple[Any, str, Callable[[Any], Any]]] = [
            (Transactions, "_new_machine", self._on_new_machine),
            (ending, "end_txn", self._on_end_txn),
            (ending, "_prepare", self._on_prepare),
            (Partition, "advance_high_watermark", self._on_high_watermark),
            (LeaderRole, "append", self._on_append),
            (Connection, "_send", self._on_send),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, make in wraps:
                stack.enter_context(replaced(owner, name, make))
            yield

    # Coordinators

    def _on_new_machine(self, new_machine: Callable[..., Any]) -> Callable[..., Any]:
        def observed(transactions: Transactions, partition: Partition) -> Any:
            machine = new_machine(transactions, partition)
            self._nodes[machine.table] = partition.env.node_id
            return machine

        return observed

    def _on_end_txn(self, end_txn: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*args: Any) -> Any:
            self._ending = True
            try:
                return end_txn(*args)
            finally:
                self._ending = False

        return observed

    def _on_prepare(self, prepare: Callable[..., None]) -> Callable[..., None]:
        def observed(step: Any, transaction: Any, commit: bool, *args: Any) -> None:
            prepare(step, transaction, commit, *args)
            if transaction.is_ongoing:
                self._history.events.append(
                    TransactionPrepared(
                        self._now(),
                        self._nodes[step.table],
                        step.table.coordinator_epoch,
                        transaction.transactional_id,
                        transaction.producer_id,
                        transaction.producer_epoch,
                        commit,
                        self._ending,
                    )
                )

        return observed

    # Leaders

    def _on_high_watermark(self, advance: Callable[..., None]) -> Callable[..., None]:
        def observed(partition: Partition, offset: int) -> None:
            advance(partition, offset)
            leader, name = partition.leader, partition.topic_partition
            if leader is None or name.topic not in self._topics:
                return
            stable = partition.last_stable_offset
            self._max_stable[name] = max(stable, self._max_stable.get(name, 0))
            self._history.events.append(
                StableOffsetAdvanced(
                    self._now(), partition.env.node_id, name, leader.epoch, stable, offset
                )
            )

        return observed

    def _on_append(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def observed(role: LeaderRole, records: Any, **kwargs: Any) -> Any:
            result = append(role, records, **kwargs)
            if not kwargs.get("from_client", True):
                header = read_header(records)
                if header.attributes & CONTROL_BIT:
                    partition = role.partition
                    self._history.events.append(
                        MarkerAppended(
                            self._now(),
                            partition.env.node_id,
                            partition.topic_partition,
                            header.producer_id,
                            header.producer_epoch,
                        )
                    )
            return result

        return observed

    # Requests

    def _on_send(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def observed(
            connection: Connection, request: Any, response: type, api: Api, version: int, *args: Any
        ) -> Any:
            future = send(connection, request, response, api, version, *args)
            if connection._client_id == REPLAYER:
                return future
            producers = _producers_of(request)
            if producers is not None:
                self.sent.append(SentRequest(request, response, api, version, connection.address))
                if producers:
                    self._await_answer(producers, future)
            return future

        return observed

    def _await_answer(self, producers: list[_Producer], future: Any) -> None:
        """Count requests without a response. Such a request may be executed any time later, and
        change a later transaction of a producer whose epoch is the same in both."""
        unanswered = self._history.unanswered
        for producer in producers:
            unanswered[producer] = unanswered.get(producer, 0) + 1

        def answered(done: Any) -> None:
            if not done.cancelled() and done.exception() is None:
                for producer in producers:
                    unanswered[producer] -= 1

        future.add_done_callback(answered)


def _producers_of(request: object) -> list[_Producer] | None:
    """Return the producers whose later transactions a late execution of a request may change; None
    if it is not a request of a transaction."""
    match request:
        case ProduceRequest(transactional_id=str()) | AddPartitionsToTxnRequest():
            return []
        case EndTxnRequest() | TxnOffsetCommitRequest():
            return [(request.producer_id, request.producer_epoch)]
        case WriteTxnMarkersRequest():
            return [(marker.producer_id, marker.producer_epoch) for marker in request.markers]
        case _:
            return None
