"""The output of an exactly-once copy as read_committed consumers see it, and what must hold of it.

`tests.e2e.exactly_once_copy` describes the records.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.e2e.exactly_once_copy import QUICK

OUTPUT, AUDIT = "output", "audit"
PARTITIONS = 4
DEADLINE_S = 180.0


class Copied(NamedTuple):
    """A record of OUTPUT or AUDIT; `number` is -1 in AUDIT."""

    transaction: str
    size: int
    number: int


# The records of each partition with their offsets.
Found = dict[tuple[str, int], list[tuple[int, Copied]]]


def nothing_found() -> Found:
    return {**{(OUTPUT, partition): [] for partition in range(PARTITIONS)}, (AUDIT, 0): []}


def keep(found: Found, message: Any) -> None:
    transaction, size, *number = message.value().decode().split(" ")
    copied = Copied(transaction, int(size), int(number[0]) if number else -1)
    found[message.topic(), message.partition()].append((message.offset(), copied))


def read_committed(bootstrap: str) -> Consumer:
    """Return a consumer of all partitions of OUTPUT and AUDIT from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned-only",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in nothing_found()])
    return consumer


class Observer:
    """Reads OUTPUT and AUDIT with read_committed all the time, through all failures."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = read_committed(bootstrap)
        self.found = nothing_found()
        self.count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages: list[Any] = self._consumer.consume(500, timeout=0.1)
            for message in messages:
                if message.error() is None:
                    keep(self.found, message)
                    self.count += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()


def read_everything(bootstrap: str) -> Found:
    """Read OUTPUT and AUDIT from the beginning to the last stable offset."""
    consumer, found = read_committed(bootstrap), nothing_found()
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(ended) < len(found):
            assert time.monotonic() < deadline, f"only {ended} could be read to the end"
            messages: list[Any] = consumer.consume(1_000, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    keep(found, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
    finally:
        consumer.close()
    return found


def check_copy(found: Found, count: int) -> None:
    """Assert that the copy has every input once and in order, nothing of an aborted transaction,
    and whole transactions only."""
    for partition in range(PARTITIONS):
        numbers = [copied.number for _offset, copied in found[OUTPUT, partition]]
        assert numbers == list(range(count)), first_difference(partition, numbers)
    every = [copied for records in found.values() for _offset, copied in records]
    assert not [copied for copied in every if not copied.transaction.startswith("committed-")]
    audit = {copied.transaction: copied.size for _offset, copied in found[AUDIT, 0]}
    assert len(audit) == len(found[AUDIT, 0]), "a transaction is twice in the audit"
    written = Counter(copied.transaction for copied in every if copied.number >= 0)
    torn = {
        name: (audit.get(name), written[name])
        for name in audit.keys() | written.keys()
        if audit.get(name) != written[name]
    }
    assert not torn, f"transactions with their sizes, and what is visible of them: {torn}"


def first_difference(partition: int, numbers: Sequence[int]) -> str:
    wrong = next((index for index, number in enumerate(numbers) if index != number), len(numbers))
    return (
        f"partition {partition} has {len(numbers)} records; from index {wrong} on it has "
        f"{list(numbers[wrong : wrong + 10])}"
    )


def check_observed(observed: Found, final: Found) -> None:
    """Assert that nothing that a consumer saw at any time is different or gone in the end."""
    for partition, records in final.items():
        assert observed[partition] == records, partition
