"""The clients of the transaction explorer: producers of all protocols, any of which may be a
zombie.

A client sends its next request when the walk says so, and learns from the reply whenever it
arrives. The walk may send any of its requests again, later.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.coordinator.transactions.machine import NEEDS_PRODUCER_ID
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.sim.explore.txn_laws import Sender

if TYPE_CHECKING:
    from penstock.sim.explore.txn import TxnWalk

PARTITIONS = tuple(TopicPartition("t", index) for index in range(4))
_LIVES = count(1)
_BUMP_VERSION, _OLD_VERSION = 5, 4
_RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
)


class TxnClient:
    """A client of a transactional id. `bumps`: it speaks transaction.version 2."""

    def __init__(self, walk: TxnWalk, transactional_id: str) -> None:
        self._walk = walk
        self.id = transactional_id
        self.restart()

    def restart(self) -> None:
        """Restart the process: it forgets its producer and the requests that it sent."""
        self.life = next(self._walk.lives)
        self.producer: tuple[int, int] | None = None
        self.number = 0
        self._has_added = self._is_waiting = False
        # The outcome that it has asked for, until it is acknowledged.
        self._ending: bool | None = None
        self.bumps = self._walk.transaction_version >= 2
        self._two_phase = self._walk.two_phase and self.bumps and self._walk.choices.below(3) == 0

    def act(self) -> None:
        """Send the next request."""
        choices = self._walk.choices
        dice = choices.below(20)
        if dice == 0 and choices.below(3) == 0:
            self.restart()
        elif self._is_waiting:
            return
        elif self.producer is None:
            self._initialize()
        elif self._ending is not None:
            self._end(self._ending)
        elif dice == 1 and choices.below(3) == 0:
            self._initialize()
        elif self._has_added and dice < 12:
            self._end(choices.below(3) > 0)
        else:
            self._add(verify_only=self._has_added and not self.bumps and choices.below(2) == 0)

    def _sender(self, *, ends: bool) -> Sender:
        assert self.producer is not None
        return Sender(self.life, self.number, *self.producer, self.bumps, ends)

    def _reply(self, apply: Any) -> Any:
        """Return a callback that drops the reply if the client has restarted since."""
        life = self.life
        self._is_waiting = True

        def on_reply(reply: object) -> None:
            if self.life == life:
                self._is_waiting = False
                apply(reply)

        return on_reply

    # InitProducerId

    def _initialize(self) -> None:
        choices = self._walk.choices
        passed = self.producer if self.producer is not None and choices.below(2) else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=20_000,
            producer_id=passed[0],
            producer_epoch=passed[1],
            enable2_pc=self._two_phase,
            keep_prepared_txn=self._two_phase and choices.below(2) == 0,
        )
        self._walk.initialize(self.id, request, None, self._reply(self._initialized))

    def _initialized(self, reply: object) -> None:
        assert reply is not NEEDS_PRODUCER_ID
        if isinstance(reply, InitProducerIdResponse) and not reply.error_code:
            self.producer = (reply.producer_id, reply.producer_epoch)
            self.number += 1
            # A client that keeps a prepared transaction ends it.
            kept = reply.ongoing_txn_producer_id >= 0
            self._has_added = kept
            self._ending = (self._walk.choices.below(2) == 0) if kept else None
            if kept:
                self._walk.laws_own(self._sender(ends=True), reply)
        elif _is_fatal(reply):
            self.restart()

    # AddPartitionsToTxn

    def _add(self, *, verify_only: bool) -> None:
        choices = self._walk.choices
        partitions = {PARTITIONS[choices.below(4)] for _ in range(1 + choices.below(2))}
        sender = None if verify_only else self._sender(ends=False)
        assert self.producer is not None
        self._walk.add(
            self.id,
            self.producer,
            sorted(partitions),
            verify_only,
            2 if self.bumps else 0,
            sender,
            self._reply(self._added),
        )

    def _added(self, reply: object) -> None:
        codes = set(reply.values()) if isinstance(reply, dict) else {_code(reply)}
        if codes <= {ErrorCode.NONE}:
            self._has_added = True
        elif ErrorCode.TRANSACTION_ABORTABLE in codes:
            self._ending = False if self._has_added else None
        elif not codes <= set(_RETRIABLE):
            self.restart()

    # EndTxn

    def _end(self, commit: bool) -> None:
        assert self.producer is not None
        self._ending = commit
        sent = self.producer
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=sent[0],
            producer_epoch=sent[1],
            committed=commit,
        )
        version = _BUMP_VERSION if self.bumps else _OLD_VERSION

        def ended(reply: object) -> None:
            self._ended(reply, sent, commit)

        self._walk.end_txn(
            self.id, request, version, None, self._sender(ends=True), self._reply(ended)
        )

    def _ended(self, reply: object, sent: tuple[int, int], commit: bool) -> None:
        if isinstance(reply, EndTxnResponse) and not reply.error_code:
            if self.bumps:
                self._walk.acknowledge(self.id, sent, commit)
                self.producer = (reply.producer_id, reply.producer_epoch)
            self.number += 1
            self._has_added, self._ending = False, None
        elif _is_fatal(reply):
            self.restart()


def _code(reply: object) -> ErrorCode:
    if isinstance(reply, KafkaError):
        return reply.code
    return ErrorCode(getattr(reply, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR))


def _is_fatal(reply: object) -> bool:
    return _code(reply) not in _RETRIABLE
