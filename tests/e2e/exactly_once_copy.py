"""Copy a topic exactly once with confluent-kafka: consume, transform, produce, and commit the
offsets in the transaction.

    python -m tests.e2e.exactly_once_copy BOOTSTRAP INPUT OUTPUT AUDIT GROUP TRANSACTIONAL_ID

A member of a group, in a process of its own, until SIGTERM; SIGQUIT prints its stack. It ends with
an error when it can no longer be sure of its position (fenced, a fatal error, a transaction that
takes too long); its parent starts it again.

A record of OUTPUT has the partition of its input, and the value "transaction size number": the name
of the transaction, how many records of OUTPUT it has, and the input's value. AUDIT has one record
per transaction, "transaction size". Every seventh transaction is aborted, and its name says so.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH = 40
ABORT_EVERY = 7
CALL_TIMEOUT_S = 10.0
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}
SESSION_MS = 4_000
TRANSACTION_MS = 10_000
# A transaction that takes longer ends the process with SIGALRM: after all brokers were down,
# send_offsets_to_transaction of librdkafka 2.16 may send no TxnOffsetCommit and never return, with
# any broker.
WATCHDOG_S = 15


class Copier:
    def __init__(
        self,
        stopping: Event,
        bootstrap: str,
        source: str,
        output: str,
        audit: str,
        group: str,
        transactional_id: str,
    ) -> None:
        self._source, self._output, self._audit = source, output, audit
        self._batch: list[Any] = []
        self._name, self._count = f"{transactional_id}-{uuid4().hex[:8]}", 0
        self._stopping = stopping
        where = {"bootstrap.servers": bootstrap, **QUICK}
        self._producer = Producer(
            {
                **where,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 1,
            }
        )
        # Aborts the transaction that a killed copier of this id left open.
        self._retried(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
        self._consumer = Consumer(
            {
                **where,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
            }
        )
        # The records of a batch may belong to another member after a rebalance.
        self._consumer.subscribe([source], on_revoke=self._forget, on_lost=self._forget)

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._batch.append(message)
            if self._batch and (message is None or len(self._batch) >= BATCH):
                signal.alarm(WATCHDOG_S)
                self._copy()
                signal.alarm(0)
        self._consumer.close()

    def _forget(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._batch.clear()

    def _copy(self) -> None:
        """Copy the batch in one transaction, or abort it and consume the batch again."""
        batch, self._batch = self._batch, []
        self._count += 1
        aborts = self._count % ABORT_EVERY == 0
        name = f"{'aborted' if aborts else 'committed'}-{self._name}-{self._count}"
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        for message in batch:
            first.setdefault(message.partition(), message.offset())
            after[message.partition()] = message.offset() + 1
        try:
            self._producer.begin_transaction()
            for message in batch:
                value = f"{name} {len(batch)} {message.value().decode()}"
                self._producer.produce(self._output, value, partition=message.partition())
            self._producer.produce(self._audit, f"{name} {len(batch)}")
            offsets = [TopicPartition(self._source, *position) for position in after.items()]
            self._retried(
                lambda: self._producer.send_offsets_to_transaction(
                    offsets, self._consumer.consumer_group_metadata(), CALL_TIMEOUT_S
                )
            )
            if not aborts:
                self._retried(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            sys.stderr.write(f"{name} must be aborted: {error}\n")
        self._retried(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))
        assigned = {position.partition for position in self._consumer.assignment()}
        for partition, offset in first.items():
            if partition in assigned:
                self._consumer.seek(TopicPartition(self._source, partition, offset))

    def _retried(self, call: Callable[[], None]) -> None:
        """Call again after retriable errors, which include the timeout of the call."""
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping.is_set():
                    raise
                sys.stderr.write(f"again after {error}\n")


def main(arguments: list[str]) -> None:
    faulthandler.register(signal.SIGQUIT)
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda *_signal: stopping.set())
    Copier(stopping, *arguments).run()


if __name__ == "__main__":
    main(sys.argv[1:])
