"""The check of the crash matrix: each result once, and no transaction left open.

It reads with confluent-kafka and asks with kafka-python, so that nothing of Penstock checks itself.
A record's key is the number of its result.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import OffsetSpec
from kafka.protocol.consumer import IsolationLevel

from tests.e2e.exactly_once import ENDED
from tests.e2e.exactly_once_copy import QUICK

# Only against hanging: a Spark driver can take minutes to start on a busy machine.
DEADLINE_S = 600.0
_SHOWN = 5


class CrashMatrixError(AssertionError):
    """A result is missing or duplicated, or a transaction is left open."""


class Results(NamedTuple):
    """What a read_committed reader sees, beside what it must see."""

    seen: Counter[int]
    expected: Counter[int]

    @property
    def duplicates(self) -> list[int]:
        return sorted(each for each, times in self.seen.items() if times > self.expected[each])

    @property
    def lost(self) -> list[int]:
        return sorted(each for each, times in self.expected.items() if self.seen[each] < times)

    def check(self) -> None:
        problems = [
            f"{len(numbers)} results are {problem}: "
            + ", ".join(
                f"{each} ({self.seen[each]} times, not {self.expected[each]})"
                for each in numbers[:_SHOWN]
            )
            for problem, numbers in (("duplicated", self.duplicates), ("lost", self.lost))
            if numbers
        ]
        if problems:
            raise CrashMatrixError("; ".join(problems))


class Reader:
    """Reads all partitions of a topic from the beginning with read_committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: Counter[int] = Counter()
        self._not_at_end = set(range(partitions))
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "assigned-only",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **QUICK,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )

    @property
    def at_end(self) -> bool:
        """All partitions were read up to their last stable offsets."""
        return not self._not_at_end

    def poll(self) -> None:
        messages: list[Any] = self._consumer.consume(1_000, timeout=0.1)
        for message in messages:
            error = message.error()
            if error is None:
                self.seen[int(message.key())] += 1
                self._not_at_end.add(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._not_at_end.discard(message.partition())

    def close(self) -> None:
        self._consumer.close()


class CrashCheck:
    """The results in one topic, and the transactions of the whole cluster."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
        self._observer: Reader | None = None

    def close(self) -> None:
        if self._observer is not None:
            self._observer.close()

    def results(self, expected: Mapping[int, int]) -> Results:
        """Read the topic up to its last stable offset."""
        reader = self._reader()
        deadline = time.monotonic() + DEADLINE_S
        try:
            while not reader.at_end:
                if time.monotonic() > deadline:
                    raise CrashMatrixError(f"{self._topic} could not be read to the end")
                reader.poll()
        finally:
            reader.close()
        return Results(reader.seen, Counter(expected))

    def wait_for_results(self, expected: Mapping[int, int], alive: Callable[[], None]) -> None:
        """Wait until a reader sees as many results as expected. `alive` raises if nothing writes
        them any more."""
        if self._observer is None:
            self._observer = self._reader()
        total = sum(expected.values())
        deadline = time.monotonic() + DEADLINE_S
        while self._observer.seen.total() < total:
            alive()
            if time.monotonic() > deadline:
                Results(self._observer.seen, Counter(expected)).check()
            self._observer.poll()

    def check(self, expected: Mapping[int, int]) -> None:
        """Check that the results are the expected ones, and that a reader that was there all the
        time saw the same."""
        results = self.results(expected)
        results.check()
        if self._observer is not None:
            deadline = time.monotonic() + DEADLINE_S
            while (
                self._observer.seen.total() < results.seen.total() and time.monotonic() < deadline
            ):
                self._observer.poll()
            Results(self._observer.seen, results.seen).check()

    def transactional_ids(self) -> set[str]:
        with closing(kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            return {
                each.transactional_id
                for transactions in admin.list_transactions().values()
                for each in transactions
            }

    def open_transactions(self) -> list[str]:
        """Return the transactions that have not ended, and partitions whose last stable offset is
        below the high watermark."""
        with closing(kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
            listed = [
                f"{each.transactional_id} is {each.state}"
                for transactions in admin.list_transactions().values()
                for each in transactions
                if each.state not in ENDED
            ]
            latest = {
                kafka.TopicPartition(topic, index): OffsetSpec.LATEST
                for topic, count in self._partitions().items()
                for index in range(count)
            }
            # Read the bounds first: a transaction that ends meanwhile must not look open.
            ends = admin.list_partition_offsets(latest)
            stable = admin.list_partition_offsets(latest, IsolationLevel.READ_COMMITTED)
        return listed + [
            f"{partition.topic}-{partition.partition} is stable up to "
            f"{stable[partition].offset} of {ends[partition].offset}"
            for partition in latest
            if stable[partition].offset < ends[partition].offset
        ]

    def wait_until_ended(self, patience_s: float = 60.0) -> None:
        """Wait until no transaction is open. Brokers that restart are asked again."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                left = self.open_transactions()
            except (kafka.errors.KafkaError, KafkaException) as error:
                left = [repr(error)]
            if not left:
                return
            if time.monotonic() > deadline:
                raise CrashMatrixError(
                    f"after {patience_s:g} s transactions are left open: {'; '.join(left)}"
                )
            time.sleep(0.1)

    def _reader(self) -> Reader:
        return Reader(self._bootstrap, self._topic, self._partitions()[self._topic])

    def _partitions(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=DEADLINE_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}
