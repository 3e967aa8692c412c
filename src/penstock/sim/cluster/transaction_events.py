"""Events of transactions in a simulated cluster run: what transactional producers and their readers
saw, and what observers saw inside the nodes.

`txn` names a transaction: transactional id, instance and number, as `tx0.2.17`. A value of a
transactional topic is `txn:index`, and a copied value `txn:index=value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.ids import TopicPartition
from penstock.sim.cluster.events import Event


def txn_of(value: bytes) -> str:
    """Return the transaction of a value."""
    return value.partition(b":")[0].decode()


def instance_of(txn: str) -> tuple[str, int]:
    """Return the transactional id of a transaction, and the number of the instance."""
    transactional_id, instance, _number = txn.rsplit(".", 2)
    return transactional_id, int(instance)


# Producers and readers


@dataclass(frozen=True, slots=True)
class ProducerInitialized(Event):
    """A new instance of a transactional id has its producer id and epoch: all earlier instances are
    fenced."""

    transactional_id: str
    instance: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionBegun(Event):
    """With `bumps`, the end of the transaction changes the epoch (transaction.version 2)."""

    txn: str
    producer_id: int
    epoch: int
    bumps: bool


@dataclass(frozen=True, slots=True)
class TransactionalSend(Event):
    txn: str
    partition: TopicPartition
    value: bytes


@dataclass(frozen=True, slots=True)
class TransactionalSendAcknowledged(Event):
    """`offset` is -1 if the broker recognised a retry as a duplicate of an earlier append."""

    txn: str
    partition: TopicPartition
    value: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class TransactionDecided(Event):
    """The external coordinator of a prepared transaction has stored its outcome (KIP-939)."""

    txn: str
    commit: bool


@dataclass(frozen=True, slots=True)
class EndStarted(Event):
    """A producer began to commit or abort its transaction."""

    txn: str
    commit: bool


@dataclass(frozen=True, slots=True)
class EndFinished(Event):
    """`error` is None if the end was acknowledged. After an error its outcome is unknown."""

    txn: str
    commit: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class IsolatedRead(Event):
    """A consumer with an isolation level read a record. `max_visible` is the highest last stable
    offset that any leader has had, or for read_uncommitted the highest high watermark."""

    reader: str
    partition: TopicPartition
    offset: int
    value: bytes
    committed: bool
    max_visible: int


@dataclass(frozen=True, slots=True)
class StableOffsetFetched(Event):
    """A consumer learnt the last stable offset from a leader of this epoch."""

    reader: str
    broker: int
    partition: TopicPartition
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class CopyOffsetsFetched(Event):
    """A client asked `broker` for the committed offsets of the copiers' group."""

    group: str
    started: float
    broker: int | None
    offsets: Mapping[TopicPartition, int]


# Coordinators and leaders, seen from inside the nodes


@dataclass(frozen=True, slots=True)
class TransactionPrepared(Event):
    """A coordinator decided the outcome of an ongoing transaction of this producer. `by_client`
    says that EndTxn did. The step may still be refused or lost. Then a coordinator decides again:
    the same one, or one of a later epoch."""

    node: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    by_client: bool


@dataclass(frozen=True, slots=True)
class MarkerAppended(Event):
    """A leader appended a transaction marker."""

    node: int
    partition: TopicPartition
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StableOffsetAdvanced(Event):
    """A leader advanced its high watermark, and has this last stable offset then."""

    node: int
    partition: TopicPartition
    epoch: int
    last_stable_offset: int
    high_watermark: int
