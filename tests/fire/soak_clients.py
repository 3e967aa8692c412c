"""The clients of a soak beside the plain producer: a consumer group, a transactional producer and a
Spark query, each with what it knows at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.fire.cluster import OUTSIDE, FireCluster, FireError
from tests.fire.load import CLIENT

_PATIENCE_S = 60.0


class Worker:
    """Runs work outside the cluster, in a thread, until it is stopped."""

    def __init__(self, cluster: FireCluster, *works: Callable[[], None]) -> None:
        self.cluster, self.stopping = cluster, threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in works]
        self._failure: BaseException | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise FireError(f"{type(self).__name__} failed") from self._failure

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            self.cluster.network.hosts[OUTSIDE].enter()
            work()
        except BaseException as error:  # noqa: BLE001 - raised by raise_failure
            self._failure = error


class Group(Worker):
    """Two members of one group that read a topic and commit. Committed offsets never go back."""

    def __init__(self, cluster: FireCluster, topic: str, partitions: int) -> None:
        super().__init__(cluster, self._read, self._read, self._watch)
        self.topic, self.partitions = topic, partitions
        self.seen: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = {}
        self.commits = 0

    def _read(self) -> None:
        consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "soak",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "check.crcs": True,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self.stopping.is_set():
                messages = consumer.consume(2_000, timeout=0.5)
                read = [message for message in messages if message.error() is None]
                self.seen.update(
                    (message.partition() or 0, message.offset() or 0) for message in read
                )
                if read:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
            self.commits += 1
        except KafkaException as error:
            # A rebalance or a coordinator that moves: the next owner reads the records again.
            if error.args[0].fatal():
                raise

    def _watch(self) -> None:
        """Read the committed offsets again and again."""
        consumer = Consumer(
            {**CLIENT, "bootstrap.servers": self.cluster.bootstrap, "group.id": "soak"}
        )
        partitions = [TopicPartition(self.topic, index) for index in range(self.partitions)]
        try:
            while not self.stopping.wait(1.0):
                try:
                    found = consumer.committed(partitions, timeout=5)
                except KafkaException:  # no coordinator at the moment
                    continue
                for position in found:
                    if position.error is not None:
                        continue
                    before = self.committed.get(position.partition, -1)
                    # Below 0 no offset is committed.
                    if before >= 0 and position.offset < before:
                        raise FireError(
                            f"the offset of {self.topic}-{position.partition} went back from "
                            f"{before} to {position.offset}"
                        )
                    self.committed[position.partition] = max(before, position.offset)
        finally:
            consumer.close()


class Transactions(Worker):
    """Transactions of one record to each of two partitions; every fourth is aborted."""

    PARTITIONS = 2

    def __init__(self, cluster: FireCluster, topic: str) -> None:
        super().__init__(cluster, self._write)
        self.topic = topic
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._number = 0

    def _write(self) -> None:
        instance = 0
        while not self.stopping.is_set():
            instance += 1
            producer = Producer(
                {
                    **CLIENT,
                    "bootstrap.servers": self.cluster.bootstrap,
                    "transactional.id": "soak",
                    "transaction.timeout.ms": 20_000,
                }
            )
            try:
                producer.init_transactions(_PATIENCE_S)
                while not self.stopping.is_set():
                    self._transact(producer)
            except KafkaException:
                # A new instance fences this one. The outcome of the last transaction is unknown,
                # and it has all of its records or none.
                self.stopping.wait(0.5)

    def _transact(self, producer: Producer) -> None:
        number, self._number = self._number, self._number + 1
        producer.begin_transaction()
        for partition in range(self.PARTITIONS):
            producer.produce(self.topic, b"%d" % number, partition=partition)
        producer.flush(_PATIENCE_S)
        if number % 4 == 3:
            producer.abort_transaction(_PATIENCE_S)
            self.aborted.add(number)
        else:
            producer.commit_transaction(_PATIENCE_S)
            self.committed.add(number)
        self.stopping.wait(0.05)

    def check(self, found: list[dict[int, bytes]]) -> None:
        """Assert that the transactions of a read_committed reader are whole and once."""
        numbers = [[int(value) for value in records.values()] for records in found]
        assert numbers[0] == sorted(set(numbers[0])), "a transaction is there twice"
        assert numbers[0] == numbers[1], "a transaction is torn"
        present = set(numbers[0])
        assert not self.committed - present, f"committed but lost: {self.committed - present}"
        assert not self.aborted & present, f"aborted but read: {self.aborted & present}"


class SparkQuery:
    """A Spark streaming query that copies a topic to Parquet, in a process of its own."""

    def __init__(self, cluster: FireCluster, topic: str, directory: Path) -> None:
        self._cluster, self._topic, self._directory = cluster, topic, directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "spark.log"
        self.restarts = 0

    def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        self._process = self._launch()

    def keep_running(self) -> None:
        """Start the query again if it gave up, as a supervisor would."""
        if self._process is not None and self._process.poll() is not None:
            self.restarts += 1
            self.start()

    def finish(self) -> list[int]:
        """End the query, read the rest in another, and return all numbers that they wrote."""
        self.kill()
        if self._launch("drain").wait(300) != 0:
            raise FireError(f"the Spark query failed: {self._log.read_text()[-3000:]}")
        return [int(line) for line in (self._directory / "numbers").read_text().split()]

    def kill(self) -> None:
        """Kill Spark's Python and Java."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _launch(self, *more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.fire.soak_spark", self._cluster.bootstrap]
        words += [self._topic, str(self._directory), *more]
        local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        with self._log.open("ab") as log:
            return self._cluster.network.hosts[OUTSIDE].run(
                lambda: subprocess.Popen(
                    words, stdout=log, stderr=log, env=os.environ | local, start_new_session=True
                )
            )


def wait_for(condition: Callable[[], bool], what: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise FireError(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.2)
