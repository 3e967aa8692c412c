"""The queries of a pipeline while they run: started together, followed batch by batch, and stopped
between two batches."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.pipeline.checkpoint import records_of_batch
from penstock.spark.pipeline.errors import PipelineError, failure, reason
from penstock.spark.pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# How often a query is asked whether its batch is done, once it is to stop: much quicker than the
# next batch is planned.
_LOOK_S = 0.01
# Spark gives a source's Python process ten seconds to start, whatever else the machine is doing. A
# query that fails of it has read nothing since its last batch, and is started again, a few times.
_STARTED_TOO_SLOWLY = "Python worker failed to connect back"
_MOST_RESTARTS = 5


class Queries:
    """`directory` is the pipeline's. `once` drains what is there."""

    def __init__(
        self,
        writers: Mapping[str, DataStreamWriter],
        checkpoint: str,
        directory: Path,
        *,
        once: bool,
        fail_on_late_rows: bool,
    ) -> None:
        self._writers = {
            name: _named(writer, name, checkpoint, once=once) for name, writer in writers.items()
        }
        self._running: dict[str, StreamingQuery] = {}
        self._restarts = dict.fromkeys(writers, 0)
        self._checkpoint = checkpoint
        self._directory = directory
        self._fail_on_late_rows = fail_on_late_rows
        self.progress = {name: Progress() for name in writers}

    def start(self) -> None:
        for name in self._writers:
            self._start(name)

    def follow(self) -> bool:
        """Takes in what was reported since; whether any query runs on. PipelineError where one
        failed."""
        active = [query for query in self._running.values() if query.isActive]
        for name, query in self._running.items():
            for told in query.recentProgress:
                self.progress[name] = self.progress[name].after(json.loads(told.json))
            self._check_late_rows(name)
        failed = {
            name: query.exception() for name, query in self._running.items() if not query.isActive
        }
        restarted = [
            name
            for name, error in failed.items()
            if error is not None and self._start_again(name, str(error))
        ]
        return bool(active or restarted)

    def stop_between_batches(self, within_s: float) -> None:
        """Each query when its batch is done, or when the time is over."""
        deadline = time.monotonic() + within_s
        waiting = {name: _batch(query) for name, query in self._running.items() if query.isActive}
        while waiting and time.monotonic() < deadline:
            for name, batch in list(waiting.items()):
                query = self._running[name]
                if (
                    not query.isActive
                    or query.status["message"].startswith("Waiting")
                    or _batch(query) != batch
                ):
                    query.stop()
                    del waiting[name]
            time.sleep(_LOOK_S)
        self.stop()

    def stop(self) -> None:
        for query in self._running.values():
            if query.isActive:
                query.stop()

    def _start(self, name: str) -> None:
        try:
            self._running[name] = self._writers[name].start()
        except Exception as error:
            self.stop()
            raise PipelineError(
                f"the query {name} cannot be started: {reason(str(error))}"
            ) from error

    def _start_again(self, name: str, error: str) -> bool:
        """PipelineError where that would not help."""
        self._restarts[name] += 1
        if _STARTED_TOO_SLOWLY not in error or self._restarts[name] > _MOST_RESTARTS:
            raise PipelineError(
                failure(
                    error, name, records_of_batch(Path(self._checkpoint) / name), self._directory
                )
            )
        self._start(name)
        return True

    def _check_late_rows(self, name: str) -> None:
        late = self.progress[name].late_rows
        if late and self._fail_on_late_rows:
            advice = (
                "raise the delay of withWatermark, or take FAIL_ON_LATE_ROWS out of the pipeline"
            )
            raise PipelineError(
                f"the query {name} dropped {late} rows that came behind its watermark: {advice}"
            )


def _named(writer: DataStreamWriter, name: str, checkpoint: str, *, once: bool) -> DataStreamWriter:
    named = writer.queryName(name).option("checkpointLocation", f"{checkpoint}/{name}")
    return named.trigger(availableNow=True) if once else named


def _batch(query: StreamingQuery) -> tuple[int, str]:
    last = query.lastProgress
    return (-1, "") if last is None else (last.batchId, last.timestamp)
