"""The DataSourceArrowWriter of exactly-once delivery, for streams and for batch writes with
txnAppId and txnVersion.

Spark plans each micro-batch in one process: `take_lease` runs there, and the writer is pickled with
its lease to the tasks. `commit` and `abort` run in another process, for a stream with a new writer,
which knows the lease from the commit messages alone.

    planner    lease.LeaseTaker     fence, read the decision, settle what was left behind
    tasks      task.TaskWriter      write to a prepared transaction, or into the commit message
    commit     commit.Committer     decide, then end the prepared transactions
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.client.client import Client
from penstock.spark.options import OptionError, SinkOptions
from penstock.spark.shared_client import shared_client
from penstock.spark.sink.checkpoint import (
    QUERY_ID_PROPERTY,
    default_sink_name,
    offsets_sha256,
    warn_without_offsets,
)
from penstock.spark.sink.commit import Committer, impatient
from penstock.spark.sink.decision import (
    Decision,
    PreparedTransaction,
    SinkError,
    check_drained,
    earlier_queries,
)
from penstock.spark.sink.lease import Lease, LeaseTaker
from penstock.spark.sink.task import TaskResult, TaskWriter, max_inline_bytes
from penstock.spark.worker_process import runs_module

# Spark's worker that creates the writers of tasks; all other workers only use them.
_PLANNER = "pyspark.sql.worker.write_into_data_source"
# The property with the batch id in the tasks of a micro-batch.
_BATCH_ID = "streaming.sql.batchId"


def is_planner() -> bool:
    """Return True in the process that creates a writer for the tasks of a micro-batch."""
    return runs_module(_PLANNER)


class _ExactlyOnce(ABC):
    """What streams and batch writes share."""

    leases: ClassVar[type[LeaseTaker]] = LeaseTaker
    tasks: ClassVar[type[TaskWriter]] = TaskWriter
    commits: ClassVar[type[Committer]] = Committer

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.lease: Lease | None = None

    @abstractmethod
    def sink_name(self) -> str:
        """Return the name under which the sink decides, which no other query has."""

    def take_lease(self) -> None:
        """Take the lease for this writer's tasks. Raises if none of them may start."""
        sink, options = self.sink_name(), self.options
        with shared_client(options.connection) as blocking:
            self.lease = blocking.call(lambda client: self.leases(client, options, sink).take())
            self.options = dataclasses.replace(options, connection=blocking.connection_options())

    def _write(
        self, iterator: Iterator[pa.RecordBatch], query_id: str | None, batch_id: int
    ) -> TaskResult:
        if self.lease is None:
            raise SinkError(
                "the task has no lease of its sink: its planner did not take one. Report this as a "
                "bug, with the version of Spark"
            )
        context = TaskContext.get()
        inline_bytes = max_inline_bytes(0 if context is None else context.partitionId())
        task = self.tasks(self.options, self.lease, query_id, batch_id, inline_bytes)
        return task.write(iterator)

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], query_id: str | None, batch_id: int
    ) -> None:
        results = task_results(messages, batch_id)
        if not results:
            return
        lease, location = results[0].lease, self.options.checkpoint_location
        sha256 = None if query_id is None else offsets_sha256(location, batch_id)
        if results[0].drained:
            assert lease.decided is not None
            check_drained(lease.sink, lease.decided, query_id, batch_id, sha256)
            return
        earlier = earlier_queries(lease.decided, query_id)
        decision = Decision(query_id, batch_id, sha256, prepared_of(results), earlier)
        with shared_client(self.options.connection) as blocking:
            blocking.call(
                lambda client: self.commits(client, self.options, lease).commit(results, decision)
            )

    def _abort(
        self, messages: Sequence[WriterCommitMessage | None], lease: Lease | None, batch_id: int
    ) -> None:
        """Where no task has a result, the lease is not known, nor is what the tasks have left. A
        new lease settles it, since the query may not come back."""
        results = [message for message in messages if isinstance(message, TaskResult)]
        lease = results[0].lease if results else lease
        if any(result.lease != lease for result in results):
            return
        with shared_client(self.options.connection) as blocking:
            if lease is None:
                blocking.call(lambda client: self._settle(client, batch_id))
                return
            blocking.call(
                lambda client: self.commits(client, self.options, lease).abort(prepared_of(results))
            )

    async def _settle(self, client: Client, batch_id: int) -> None:
        """Take a lease, unless the batch is decided: then another start of the query has taken
        over, and a lease would fence it. Batch 0 may be that of a new query."""
        taker = self.leases(client, impatient(self.options), self.sink_name())
        decided = await taker.read_decision()
        if decided is None or batch_id == 0 or batch_id > decided.batch_id:
            await taker.take()


class ExactlyOnceStreamWriter(_ExactlyOnce, DataSourceStreamArrowWriter):
    def sink_name(self) -> str:
        return self.options.sink_name or default_sink_name(self.options.checkpoint_location)

    def take_lease(self) -> None:
        super().take_lease()
        warn_without_offsets(self.sink_name(), self.options.checkpoint_location)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID_PROPERTY)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if not query_id or not batch_id:
            raise SinkError(
                "Spark does not tell the task its query id and batch id: set the option delivery "
                "to at-least-once, and report this as a bug, with the version of Spark"
            )
        return self._write(iterator, query_id, int(batch_id))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        queries = {message.query_id for message in messages if isinstance(message, TaskResult)}
        if len(queries) > 1:
            raise SinkError(f"tasks of several queries are to be committed together: {queries}")
        self._commit(messages, next(iter(queries), None), batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages, self.lease, batchId)


class ExactlyOnceBatchWriter(_ExactlyOnce, DataSourceArrowWriter):
    """A write with txnAppId and txnVersion. As in Delta, where a version belongs to an application
    and a table, it belongs to an application and a topic."""

    def sink_name(self) -> str:
        app_id, _version = self._txn()
        topic = self.options.topic
        return app_id if topic is None else f"{app_id}:{topic}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return self._write(iterator, None, self._txn()[1])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(messages, None, self._txn()[1])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._abort(messages, self.lease, self._txn()[1])

    def _txn(self) -> tuple[str, int]:
        if self.options.txn is None:
            raise OptionError("a batch write needs txnAppId and txnVersion to be exactly once")
        return self.options.txn.app_id, self.options.txn.version


def task_results(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> list[TaskResult]:
    """Return the messages. SinkError unless all tasks wrote this batch with one lease."""
    results = [message for message in messages if isinstance(message, TaskResult)]
    if len(results) != len(messages):
        raise SinkError(
            f"{len(messages) - len(results)} of {len(messages)} tasks of batch {batch_id} have no "
            "result, so the batch is not committed"
        )
    for result in results:
        if (result.lease, result.drained) != (results[0].lease, results[0].drained):
            raise SinkError(
                f"the tasks of batch {batch_id} have different leases of sink {result.lease.sink}, "
                "so the batch is not committed. Start the query again, which repeats it"
            )
        if result.batch_id != batch_id:
            raise SinkError(
                f"a task of batch {result.batch_id} is to be committed with batch {batch_id}"
            )
    return results


def prepared_of(results: Sequence[TaskResult]) -> tuple[PreparedTransaction, ...]:
    return tuple(result.prepared for result in results if result.prepared is not None)
