"""Spark queries that fall behind, by their checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Observation, SparkQuery
from penstock.health.wording import clock_time, counted, duration, listed

# A query that has records to read and has committed no batch for this long does not run.
STALLED_MS = 60_000
# A query that keeps up has at most this many batches of lag.
_BATCHES_BEHIND = 3
_MIN_BEHIND_MS = 10_000


def check_queries(seen: Observation) -> Iterator[Finding]:
    for query in seen.queries:
        yield from _check(seen, query)


def _check(seen: Observation, query: SparkQuery) -> Iterator[Finding]:
    gone = [partition for partition in query.offsets if partition not in query.ends]
    if gone:
        yield _finding(
            query,
            "query-reads-deleted-topic",
            f"reads partitions that do not exist any more: {listed(gone)}",
            todo="the query fails unless failOnDataLoss is false; start it with a new checkpoint",
        )
    below = [
        partition
        for partition, offset in query.offsets.items()
        if partition in query.ends and offset < query.ends[partition].start
    ]
    if below:
        lost = sum(query.ends[each].start - query.offsets[each] for each in below)
        yield _finding(
            query,
            "query-lost-records",
            f"did not read {counted(lost, 'record')} of {listed(below)} before they were deleted",
            todo="raise retention.ms or retention.bytes of the topic, and make the query faster",
        )
    beyond = [
        partition
        for partition, offset in query.offsets.items()
        if partition in query.ends and offset > query.ends[partition].end
    ]
    if beyond:
        yield _finding(
            query,
            "query-beyond-end",
            f"has read beyond the end of {listed(beyond)}",
            (Reason("query-beyond-end", "the topic was deleted and created again"),),
            "start the query with a new checkpoint",
        )
    yield from _pace(seen, query)


def _pace(seen: Observation, query: SparkQuery) -> Iterator[Finding]:
    lag = sum(
        max(query.ends[partition].end - offset, 0)
        for partition, offset in query.offsets.items()
        if partition in query.ends
    )
    written = sum(query.ends[each].rate for each in query.offsets if each in query.ends)
    last_ms = query.committed_ms
    if query.committed_batch is None and query.planned_batch is None:
        yield _finding(query, "query-never-ran", "has not begun its first batch")
        return
    silent_ms = None if last_ms is None else seen.now_ms - last_ms
    patience_ms = max(STALLED_MS, _BATCHES_BEHIND * (query.batch_ms or 0))
    if lag and silent_ms is not None and last_ms is not None and silent_ms >= patience_ms:
        at = clock_time(last_ms, seen.now_ms, seen.zone)
        runs = query.planned_batch != query.committed_batch
        reason = (
            f"batch {query.planned_batch} has begun and is not committed: it runs for long, fails "
            "and is repeated, or the query was stopped in it"
            if runs
            else "no batch has begun since: the query does not run, or waits for its trigger"
        )
        yield _finding(
            query,
            "query-stalled",
            f"has committed no batch since {at}, with {counted(lag, 'record')} to read",
            (Reason("query-stalled", reason),),
            "look at the output of the query: penstock pipeline run shows the failing step",
        )
        return
    behind_ms = max(_MIN_BEHIND_MS, _BATCHES_BEHIND * (query.batch_ms or 0))
    if query.rate is not None and written > query.rate and lag > written * behind_ms / 1000:
        yield _finding(
            query,
            "query-falls-behind",
            f"falls behind, with {counted(lag, 'record')} to read",
            (
                Reason(
                    "query-falls-behind",
                    f"it reads {query.rate:,.0f} records/s of {written:,.0f} that are written"
                    + (f", in batches of {duration(query.batch_ms)}" if query.batch_ms else ""),
                ),
            ),
            "give Spark more cores, raise maxOffsetsPerTrigger or maxBytesPerTrigger if it limits "
            "the batches, or add partitions to the topic",
        )


def _finding(
    query: SparkQuery, code: str, says: str, reasons: tuple[Reason, ...] = (), todo: str = ""
) -> Finding:
    return Finding(code, Level.PROBLEM, (f"query {query.name}",), says, reasons, todo)
