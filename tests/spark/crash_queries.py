"""The short form of the crash matrix: Python processes of the sink die, and the query starts again
in the Spark session of the tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pyspark.errors import StreamingQueryException

from tests.spark.crash_check import CrashMatrixError
from tests.spark.crash_faults import Action
from tests.spark.crash_job import start_query
from tests.spark.crash_stream import LARGE_BYTES, ROWS_IN_BATCH, Stream
from tests.spark.live import session

# Against a query that fails without a fault.
_MAX_FAILURES = 50
# Batches until every step was reached: a batch that is decided does not reach the later ones again.
_MAX_BATCHES = 12


def run_to_the_end(stream: Stream) -> int:
    """Start the query again after each failure, until it has read all input. Return the number of
    failures."""
    failures = 0
    while True:
        query = start_query(session(), dataclasses.replace(stream.settings, drain=True))
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            failures += 1
            if failures > _MAX_FAILURES:
                raise CrashMatrixError("the query fails without a fault") from error
        else:
            return failures


def crash_at_each(stream: Stream, steps: Sequence[str], *, large_bytes: int = LARGE_BYTES) -> str:
    """Let a process die at each step, and check the results after each batch."""
    failures = batches = 0
    for step in steps:
        stream.faults.arm(step, Action.KILL)
    while left := [step for step in steps if stream.faults.reached_by(step) is None]:
        if batches == _MAX_BATCHES:
            raise CrashMatrixError(f"no process reached {left}")
        stream.produce(rows=ROWS_IN_BATCH, large_bytes=large_bytes)
        failures += run_to_the_end(stream)
        stream.check.wait_until_ended()
        stream.check.check(stream.expected)
        batches += 1
    if failures == 0:
        raise CrashMatrixError("no query failed")
    return (
        f"a crash at each of {len(steps)} steps, {failures} failures in {batches} batches; "
        f"{len(stream.expected)} results once, no transaction open"
    )
