"""The least that a streaming query with a source and a sink in Python costs Spark: a source that
reads from memory, and a sink that drops its rows.

Spark's Python processes import this module, so it imports nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

# Method names are Spark's.
# ruff: noqa: N802, N803

FORMAT = "empty"


class EmptyDataSource(DataSource):
    """Its options are `rows`, of a micro-batch, and `triggers`, after which no more rows come."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "key STRING, value STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return EmptyReader(int(self.options["rows"]), int(self.options["triggers"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        return EmptyWriter()


class EmptyReader(DataSourceStreamReader):
    def __init__(self, rows: int, triggers: int) -> None:
        self._rows = rows
        self._end = rows * triggers

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002
        return {"offset": min(start["offset"] + self._rows, self._end)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["offset"], end["offset"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        for number in range(*partition.value):
            yield str(number), "value"


class EmptyWriter(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        for _row in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass
