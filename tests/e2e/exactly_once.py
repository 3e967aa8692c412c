"""An exactly-once copy under kill -9 of brokers, coordinators and copiers.

The copiers are processes that work as `tests.e2e.exactly_once_copy` describes, with any client.
Requests to the cluster go through confluent-kafka and kafka-python, so that nothing of Penstock
checks itself.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.admin import OffsetSpec
from kafka.admin._transactions import TransactionState
from kafka.protocol.consumer import IsolationLevel

from penstock.node.shards.shard_set import positive_hash
from tests.e2e.exactly_once_copy import QUICK
from tests.e2e.exactly_once_records import (
    AUDIT,
    DEADLINE_S,
    OUTPUT,
    PARTITIONS,
    Observer,
    check_copy,
    check_observed,
    read_everything,
)

INPUT, GROUP = "input", "copiers"
COPIERS = 2
TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
RECORDS_PER_S = 400
# More output after a kill than what was in flight when it happened.
PROGRESS = 300
ENDED = {
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
}
KILLED = (
    "leader of an output partition",
    "transaction coordinator",
    "copier",
    "group coordinator",
    "all brokers",
)


class KillableCluster(Protocol):
    bootstrap: str

    @property
    def nodes(self) -> Sequence[int]: ...
    def kill(self, node: int) -> None: ...
    def restart(self, nodes: Sequence[int]) -> None: ...
    def logs(self) -> str: ...


# Returns the command of the copier with a transactional id.
Command = Callable[[str], Sequence[str]]


class Stalled(AssertionError):
    """The copy makes no progress, or the cluster does not become healthy again."""


class Copiers:
    """Copier processes, which are started again when they end."""

    def __init__(self, command: Command, directory: Path) -> None:
        self._command, self._directory = command, directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.failures = 0
        for number in range(COPIERS):
            self._start(f"copier-{number}")

    def kill(self, number: int) -> None:
        name = f"copier-{number % COPIERS}"
        self._processes[name].kill()
        self._processes[name].wait()
        self._start(name)

    def restart_ended(self) -> None:
        """A copier ends when it was fenced, for example after a long outage of its coordinator."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self.failures += 1
                self._start(name)

    def stop(self) -> list[int]:
        """Let the copiers finish; return their exit codes."""
        for process in self._processes.values():
            process.terminate()
        try:
            return [process.wait(DEADLINE_S) for process in self._processes.values()]
        except subprocess.TimeoutExpired:
            raise Stalled(f"a copier does not end; {self.logs()}") from None

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        """Return the ends of the copiers' logs, with the stack of each."""
        for process in self._processes.values():
            process.send_signal(signal.SIGQUIT)
        time.sleep(1.0)  # Only after a failure.
        return "\n".join(
            f"{file}:\n{file.read_text(errors='replace')[-2000:]}"
            for file in sorted(self._directory.glob("copier-*.log"))
        )

    def _start(self, name: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


class InputLoad:
    """Produces numbered records to every partition of INPUT at a steady rate, until `finish`."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUICK}
        self._producer = Producer({**settings, "message.timeout.ms": int(DEADLINE_S * 1000)})
        self.count = 0
        self._failure: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="input")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(PARTITIONS / RECORDS_PER_S):
            for partition in range(PARTITIONS):
                value = b"%d" % self.count
                self._producer.produce(
                    INPUT, value, partition=partition, on_delivery=self._delivered
                )
            self.count += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        self._failure = self._failure or error

    def finish(self) -> int:
        """Return the number of records of each partition, all of which are acknowledged."""
        self.stop()
        left = self._producer.flush(DEADLINE_S)
        assert left == 0, f"{left} records of the input are unacknowledged"
        assert self._failure is None, f"a record of the input failed: {self._failure}"
        return self.count

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Drill:
    """Runs the copy between `with` and `finish`."""

    def __init__(self, cluster: KillableCluster, command: Command, directory: Path) -> None:
        self._cluster = cluster
        self._bootstrap = cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})
        self._command, self._directory = command, directory
        self._kills: Counter[str] = Counter()

    def __enter__(self) -> Drill:
        self._create_topics()
        with ExitStack() as stack:
            self._observer = Observer(self._bootstrap)
            stack.callback(self._observer.stop)
            self._load = InputLoad(self._bootstrap)
            stack.callback(self._load.stop)
            self._copiers = Copiers(self._command, self._directory)
            stack.callback(self._copiers.close)
            self._closing = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    def run(self, seconds: float) -> None:
        """Kill everything in turn for this long, and each at least once."""
        self._wait_progress("the start")
        deadline = time.monotonic() + seconds
        for number, target in enumerate(cycle(KILLED)):
            if number >= len(KILLED) and time.monotonic() > deadline:
                return
            self._kill(target, number)
            self._kills[target] += 1

    def finish(self) -> str:
        """Let the copy end, check everything, and return a summary."""
        count = self._load.finish()

        def copied() -> bool:
            self._copiers.restart_ended()
            return self._committed() == [count] * PARTITIONS

        self._wait_for(
            copied, lambda: f"{self._committed()} of {count} records of each partition are copied"
        )
        codes = self._copiers.stop()
        self._wait_for(
            lambda: not self._open_transactions(), lambda: f"open: {self._open_transactions()}"
        )
        self._wait_for(lambda: not self._unstable(), lambda: f"unstable: {self._unstable()}")
        found = read_everything(self._bootstrap)
        self._wait_for(
            lambda: self._observer.count == sum(map(len, found.values())),
            lambda: f"the observer saw {self._observer.count} records",
        )
        self._observer.stop()
        assert set(codes) <= {0, -signal.SIGALRM}, f"{codes}; {self._copiers.logs()}"
        check_copy(found, count)
        check_observed(self._observer.found, found)
        transactions = len(found[AUDIT, 0])
        return (
            f"{PARTITIONS * count} records copied in {transactions} transactions; killed: "
            + ", ".join(f"{target} {times}" for target, times in self._kills.items())
            + f"; {self._copiers.failures} copier(s) ended by themselves"
        )

    # Kills

    def _kill(self, target: str, number: int) -> None:
        if target == "copier":
            self._copiers.kill(number)
            self._wait_progress(target)
            return
        nodes = self._cluster.nodes if target == "all brokers" else [self._node(target, number)]
        for node in nodes:
            self._cluster.kill(node)
        if target == "all brokers":
            self._cluster.restart(nodes)
            self._wait_progress(target)
        else:
            self._wait_progress(target)
            self._cluster.restart(nodes)
        self._wait_in_sync()

    def _node(self, target: str, number: int) -> int:
        if target == "transaction coordinator":
            return self._leader(TRANSACTIONS, f"copier-{number % COPIERS}")
        if target == "group coordinator":
            return self._leader(OFFSETS, GROUP)
        return self._leader(OUTPUT, number % PARTITIONS)

    def _leader(self, topic: str, partition: str | int) -> int:
        """Return the leader of a partition, or of the partition of a key."""
        partitions = self._partitions(topic)
        index = (
            partition if isinstance(partition, int) else positive_hash(partition) % len(partitions)
        )
        return int(partitions[index].leader)

    def _partitions(self, topic: str) -> Any:
        return self._admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions

    # Waits

    def _wait_progress(self, after: str) -> None:
        target = self._observer.count + PROGRESS

        def progressed() -> bool:
            self._copiers.restart_ended()
            return self._observer.count >= target

        self._wait_for(
            progressed,
            lambda: f"{self._observer.count} of {target} records are visible after {after}",
        )

    def _wait_in_sync(self) -> None:
        def behind() -> list[str]:
            try:
                topics = self._admin.list_topics(timeout=5).topics
            except KafkaException as error:
                return [str(error)]
            return [
                f"{name}-{index}"
                for name, topic in topics.items()
                for index, partition in topic.partitions.items()
                if len(partition.isrs) < len(partition.replicas) or partition.leader < 0
            ]

        self._wait_for(lambda: not behind(), lambda: f"not in sync: {behind()}")

    def _wait_for(self, condition: Callable[[], bool], seen: Callable[[], str]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Stalled(f"{seen()} after {DEADLINE_S:g} s; {self._state()}")
            time.sleep(0.1)

    def _state(self) -> str:
        return (
            f"open transactions: {self._open_transactions()}; unstable: {self._unstable()}; "
            f"committed offsets: {self._committed()} of {self._load.count}; "
            f"{self._copiers.logs()}; {self._cluster.logs()}"
        )

    # Requests

    def _create_topics(self) -> None:
        replicas = min(3, len(self._cluster.nodes))
        config = {"min.insync.replicas": str(min(2, replicas))}
        topics = [
            NewTopic(name, count, replicas, config=config)
            for name, count in ((INPUT, PARTITIONS), (OUTPUT, PARTITIONS), (AUDIT, 1))
        ]
        for future in self._admin.create_topics(topics).values():
            future.result(DEADLINE_S)

    def _committed(self) -> list[int]:
        """Return the committed offsets of INPUT. librdkafka does not retry while the coordinator
        loads the group."""
        try:
            found = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[
                GROUP
            ].result(10)
        except KafkaException:
            return []
        offsets = {each.partition: each.offset for each in found.topic_partitions}
        return [offsets.get(partition, 0) for partition in range(PARTITIONS)]

    def _open_transactions(self) -> list[str]:
        with closing(self._kafka_python()) as admin:
            try:
                listed = admin.list_transactions()
            except kafka.errors.KafkaError as error:
                return [repr(error)]
        return [
            f"{each.transactional_id} is {each.state}"
            for transactions in listed.values()
            for each in transactions
            if each.state not in ENDED
        ]

    def _unstable(self) -> list[str]:
        """Return the partitions whose last stable offset is not the high watermark."""
        topics = (INPUT, OUTPUT, AUDIT, OFFSETS)
        latest = {
            kafka.TopicPartition(topic, index): OffsetSpec.LATEST
            for topic in topics
            for index in self._partitions(topic)
        }
        with closing(self._kafka_python()) as admin:
            try:
                ends = admin.list_partition_offsets(latest)
                stable = admin.list_partition_offsets(latest, IsolationLevel.READ_COMMITTED)
            except kafka.errors.KafkaError as error:
                return [repr(error)]
        return [
            f"{partition}: {stable[partition].offset} of {ends[partition].offset}"
            for partition in latest
            if stable[partition].offset != ends[partition].offset
        ]

    def _kafka_python(self) -> Any:
        return kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)
