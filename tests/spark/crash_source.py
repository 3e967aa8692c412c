"""format("penstock-crash"): the sink under test, with a fault point at each step of its protocol.

The classes of the sink are subclassed; nothing in them knows about faults. The option `faults` is
the directory of `tests.spark.crash_faults`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from penstock.spark.datasource import PenstockDataSource
from penstock.spark.sink.commit import Committer
from penstock.spark.sink.exactly_once import ExactlyOnceStreamWriter
from penstock.spark.sink.lease import LeaseTaker
from penstock.spark.sink.task import TaskResult, TaskWriter
from penstock.spark.sink.writer import StreamWriter
from tests.spark.crash_faults import Action, Faults

# All fault points, in the order of the protocol.
LEASE_STEPS = ("lease", "fenced", "decision-read", "listed-committed", "list-cleared", "leased")
TASK_STEPS = ("begun", "mid-write", "prepared")
COMMIT_STEPS = (
    "commit",
    "checked",
    "written",
    "decision",
    "decided",
    "ended-one",
    "ended",
    "committed",
)
ABORT_STEPS = ("abort", "abort-driver")
STEPS = (*COMMIT_STEPS, *LEASE_STEPS, *TASK_STEPS, *ABORT_STEPS)
# Those that a batch without prepared transactions reaches.
INLINE_STEPS = (
    *("commit", "written", "decision", "decided", "committed"),
    *("lease", "fenced", "decision-read", "leased"),
    *ABORT_STEPS,
)
# EndTxn takes about this long, so that a process dies before, while and after it is handled.
_RACE_S = 0.02


class _Process:
    """The faults of the query that this process works for. A worker does one thing at a time."""

    faults: Faults | None = None


def _reach(step: str) -> None:
    if _Process.faults is not None:
        _Process.faults.reach(step)


def _race() -> threading.Thread:
    """Kill this process at a random time from now."""

    def run() -> None:
        time.sleep(random.uniform(0, _RACE_S))
        os.kill(os.getpid(), signal.SIGKILL)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


class CrashLease(LeaseTaker):
    async def take(self) -> Any:
        _reach("lease")
        lease = await super().take()
        _reach("leased")
        return lease

    async def fence(self) -> Any:
        producer = await super().fence()
        _reach("fenced")
        return producer

    async def read_decision(self) -> Any:
        decision = await super().read_decision()
        _reach("decision-read")
        return decision

    async def commit_listed(self, *arguments: Any) -> None:
        await super().commit_listed(*arguments)
        _reach("listed-committed")

    async def clear_list(self, *arguments: Any) -> Any:
        result = await super().clear_list(*arguments)
        _reach("list-cleared")
        return result


class CrashTask(TaskWriter):
    _begun = False

    def begin(self) -> None:
        super().begin()
        self._begun = True
        _reach("begun")

    def add(self, *arguments: Any) -> None:
        super().add(*arguments)
        if self._begun:
            _reach("mid-write")

    def finish(self) -> Any:
        result = super().finish()
        if self._begun:
            _reach("prepared")
        return result


class CrashCommit(Committer):
    async def commit(self, *arguments: Any) -> None:
        _reach("commit")
        await super().commit(*arguments)

    async def check_prepared(self, *arguments: Any) -> None:
        await super().check_prepared(*arguments)
        _reach("checked")

    async def write_decision(self, *arguments: Any) -> None:
        await super().write_decision(*arguments)
        _reach("written")

    async def decide(self) -> None:
        faults = _Process.faults
        action = None if faults is None else faults.take("decision")
        if action is Action.RACE:
            race = _race()
            await super().decide()
            race.join()
        if action is not None and faults is not None:
            faults.perform("decision", action)
        await super().decide()
        _reach("decided")

    async def end_listed(self, transactions: Any) -> None:
        await super().end_listed(transactions[:1])
        _reach("ended-one")
        await super().end_listed(transactions[1:])
        _reach("ended")

    async def abort(self, *arguments: Any) -> None:
        _reach("abort")
        await super().abort(*arguments)

    async def abort_driver(self) -> bool:
        undecided = await super().abort_driver()
        _reach("abort-driver")
        return undecided


class CrashWriter(ExactlyOnceStreamWriter):
    leases = CrashLease
    tasks = CrashTask
    commits = CrashCommit
    faults_directory: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        _Process.faults = Faults(Path(self.faults_directory))
        return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        _reach("committed")


class AtLeastOnceWriter(StreamWriter):
    """The other delivery, with the only step that it shares: the end of the commit."""

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        _reach("committed")


class CrashDataSource(PenstockDataSource):
    stream_writer = CrashWriter

    @classmethod
    def name(cls) -> str:
        return "penstock-crash"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        directory = self.options["faults"]
        _Process.faults = Faults(Path(directory))
        writer = super().streamWriter(schema, overwrite)
        if isinstance(writer, CrashWriter):
            writer.faults_directory = directory
            return writer
        return AtLeastOnceWriter(self._sink_options(schema, streaming=True))

    def _options(self) -> Mapping[str, str]:
        return {name: value for name, value in super()._options().items() if name != "faults"}
