"""An exactly-once sink without Spark: leases, tasks and commits are called one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.offsets import IsolationLevel
from penstock.ids import TopicPartition
from penstock.spark.options import sink_options
from penstock.spark.shared_client import shared_client
from penstock.spark.sink import slots
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.decision import Decision
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.exactly_once import ExactlyOnceStreamWriter, prepared_of
from penstock.spark.sink.lease import Lease
from penstock.spark.sink.task import TaskResult, TaskWriter

T = TypeVar("T")

QUERY = "query"
# Encoded without compression, this many are more than travel inline.
LARGE = 400
_VALUE_BYTES = 1000


def small(*names: str) -> list[str]:
    return list(names)


def large(name: str) -> list[str]:
    return [f"{name}-{row}".ljust(_VALUE_BYTES, ".") for row in range(LARGE)]


class Sink:
    """One sink and its topic, which has one partition."""

    def __init__(self, servers: str, name: str, topic: str, **options: str) -> None:
        self.servers = servers
        self.name = name
        self.topic = topic
        self.options = sink_options(
            {
                "kafka.bootstrap.servers": servers,
                "kafka.compression.type": "none",
                "sinkName": name,
                "topic": topic,
                **options,
            },
            streaming=True,
        )

    def call(self, request: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        with shared_client(self.options.connection) as blocking:
            return blocking.call(request)

    def create_topic(self) -> None:
        self.call(lambda client: client.admin.create_topic(self.topic, partitions=1))

    def lease(self) -> Lease:
        writer = ExactlyOnceStreamWriter(self.options)
        writer.take_lease()
        assert writer.lease is not None
        return writer.lease

    def write(
        self, lease: Lease, batch_id: int, values: Sequence[str], query: str = QUERY
    ) -> TaskResult:
        return TaskWriter(self.options, lease, query, batch_id).write(rows(values))

    def write_elsewhere(self, lease: Lease, batch_id: int, values: Sequence[str]) -> TaskResult:
        """Write in another worker process, which has its own transactional ids."""
        here, slots._slots = slots._slots, {}
        try:
            return self.write(lease, batch_id, values)
        finally:
            slots._slots = here

    def commit(self, batch_id: int, *results: TaskResult) -> None:
        ExactlyOnceStreamWriter(self.options).commit(results, batch_id)

    def abort(self, batch_id: int, *results: TaskResult | None) -> None:
        ExactlyOnceStreamWriter(self.options).abort(results, batch_id)

    def batch(self, batch_id: int, *tasks: Sequence[str]) -> None:
        """Run a whole micro-batch."""
        lease = self.lease()
        self.commit(batch_id, *(self.write(lease, batch_id, values) for values in tasks))

    def commit_until(self, step: str, batch_id: int, *results: TaskResult) -> None:
        """Run the steps of a commit before this one, as a driver does that dies there."""

        class Died(Exception):
            pass

        async def die(*_arguments: object) -> None:
            raise Died

        async def commit(client: Client) -> None:
            committer = Committer(client, self.options, results[0].lease)
            setattr(committer, step, die)
            try:
                await committer.commit(
                    results, Decision(QUERY, batch_id, None, prepared_of(results))
                )
            except Died:
                return
            raise AssertionError(f"the commit did not reach {step}")

        self.call(commit)

    def decision(self) -> Decision | None:
        async def read(client: Client) -> Decision | None:
            log = DecisionLog(client, self.name, 60)
            return await log.read(await log.write_barrier(self.options))

        return self.call(read)

    def visible(self) -> list[str]:
        """Return what a read_committed reader sees up to the last stable offset."""

        async def read(client: Client) -> list[str]:
            partition = TopicPartition(self.topic, 0)
            values: list[str] = []
            async with client.consumer(
                isolation=IsolationLevel.READ_COMMITTED, max_wait_s=0.05
            ) as consumer:
                await consumer.assign({partition: BEGINNING})
                end = (await consumer.end_offsets())[partition]
                while consumer.positions[partition] < end:
                    values += [
                        (record.value or b"").decode().rstrip(".")
                        for record in await consumer.poll()
                    ]
            return values

        return self.call(read)

    def open_transactions(self) -> list[str]:
        """Return the transactional ids of open transactions, of this and other sinks."""

        async def listed(client: Client) -> list[str]:
            found = await client.admin.list_transactions(states=["Ongoing"])
            return sorted(
                transaction.transactional_id
                for transactions in found.values()
                for transaction in transactions
                if transaction.transactional_id.startswith(f"{self.name}/")
            )

        return self.call(listed)

    def settled(self, expected: Sequence[str]) -> bool:
        """Return True if readers see exactly these rows, and nothing is open. Markers are written
        after EndTxn was answered, so this waits for them."""
        deadline = time.monotonic() + 10
        while True:
            visible = self.visible()
            if sorted(visible) == sorted(value.rstrip(".") for value in expected):
                return not self.open_transactions()
            if time.monotonic() > deadline or len(visible) > len(expected):
                raise AssertionError(f"readers see {len(visible)} rows, not {len(expected)}")
            time.sleep(0.02)


def rows(values: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if values:
        yield pa.record_batch([pa.array(values)], names=["value"])
