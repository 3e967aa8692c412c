"""Starts the queries of a pipeline, monitors them, and stops them between batches."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import spark_reason
from penstock.spark.pipeline.checkpoint import describe_last_batch
from penstock.spark.pipeline.errors import PipelineError, query_failure
from penstock.spark.pipeline.progress import QueryProgress
from penstock.spark.pipeline.writers import configured

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# How often `stop_between_batches` checks a query: much shorter than planning the next batch takes.
_POLL_S = 0.01
# Spark waits ten seconds for the Python process of a source to start, which is too short on a busy
# machine. A query that fails this way has read nothing since its last batch, so it is restarted.
_PYTHON_START_TIMEOUT = "Python worker failed to connect back"
_MAX_RESTARTS = 5


class RunningQueries:
    """`directory` is that of the pipeline's file, whose steps errors name. `once` processes the
    records that exist and ends."""

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
            name: configured(writer, name, checkpoint, once=once)
            for name, writer in writers.items()
        }
        self._queries: dict[str, StreamingQuery] = {}
        self._restarts = dict.fromkeys(writers, 0)
        self._checkpoint = checkpoint
        self._directory = directory
        self._fail_on_late_rows = fail_on_late_rows
        self.progress = {name: QueryProgress() for name in writers}

    def start(self) -> None:
        for name in self._writers:
            self._start(name)

    def poll(self) -> bool:
        """Update the progress. Return True while any query runs. PipelineError if one failed."""
        active = [query for query in self._queries.values() if query.isActive]
        for name, query in self._queries.items():
            for reported in query.recentProgress:
                self.progress[name] = self.progress[name].after(json.loads(reported.json))
            self.progress[name] = self.progress[name].with_status(query.status["message"])
            self._check_late_rows(name)
        exceptions = {
            name: query.exception() for name, query in self._queries.items() if not query.isActive
        }
        restarted = [
            name
            for name, error in exceptions.items()
            if error is not None and self._restart(name, str(error))
        ]
        return bool(active or restarted)

    def stop_between_batches(self, timeout_s: float) -> None:
        """Stop each query when its batch is done, or when the timeout has passed."""
        deadline = time.monotonic() + timeout_s
        waiting = {
            name: _last_batch(query) for name, query in self._queries.items() if query.isActive
        }
        while waiting and time.monotonic() < deadline:
            for name, batch in list(waiting.items()):
                query = self._queries[name]
                if (
                    not query.isActive
                    or query.status["message"].startswith("Waiting")
                    or _last_batch(query) != batch
                ):
                    query.stop()
                    del waiting[name]
            time.sleep(_POLL_S)
        self.stop()

    def stop(self) -> None:
        for query in self._queries.values():
            if query.isActive:
                query.stop()

    def _start(self, name: str) -> None:
        try:
            self._queries[name] = self._writers[name].start()
        except Exception as error:
            self.stop()
            raise PipelineError(
                f"query {name} cannot be started: {spark_reason(str(error))}"
            ) from error

    def _restart(self, name: str, error: str) -> bool:
        """Restart a query whose Python process started too slowly. PipelineError for other errors
        and after too many restarts."""
        self._restarts[name] += 1
        if _PYTHON_START_TIMEOUT not in error or self._restarts[name] > _MAX_RESTARTS:
            batch = describe_last_batch(Path(self._checkpoint) / name)
            raise PipelineError(query_failure(error, name, batch, self._directory))
        self._start(name)
        return True

    def _check_late_rows(self, name: str) -> None:
        late_rows = self.progress[name].late_rows
        if late_rows and self._fail_on_late_rows:
            raise PipelineError(
                f"query {name} dropped {late_rows} rows that arrived later than its watermark: "
                "raise the delay of withWatermark, or remove FAIL_ON_LATE_ROWS from the pipeline"
            )


def _last_batch(query: StreamingQuery) -> tuple[int, str]:
    progress = query.lastProgress
    return (-1, "") if progress is None else (progress.batchId, progress.timestamp)
