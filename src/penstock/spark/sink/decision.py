"""The decision of an exactly-once sink, which says which micro-batch is written, and by which
transactions. PURE.

A sink has one decision, the last. It is a record of a compacted topic, with the sink's name as its
key, and it is committed in the same Kafka transaction as the rows that travel inline. Committing
that transaction decides the micro-batch. From then on the listed transactions, which hold the rows
of large tasks, may only be committed; before, they may only be aborted.

    batch id    above the decided one        write it
                the decided one              drain it: its rows are written
                below the decided one        refuse it: the checkpoint is older
                of another query, 0          write it: the checkpoint was deleted
                of another query, above 0    refuse it: two queries use the sink
                of an earlier query          refuse it, whatever its id

Two queries that use a sink in turn would hide from each other what they have written. A new query
starts with batch 0, and every micro-batch that Spark runs has a task and is decided, so a new query
is known to the sink from its first micro-batch on. The decision keeps the queries before it.

A query that Spark runs again after a crash repeats its last micro-batch, with the same id and the
same source offsets, but perhaps with other rows in each task. An older checkpoint that was restored
repeats ids with other offsets. The SHA-256 of Spark's file `offsets/<batch id>` tells them apart
where the ids are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.client.producer.accumulator import ProducerIdAndEpoch

_VERSION = 1
_MAX_INT64 = 2**63 - 1
_MAX_EPOCH = 2**15 - 1
# A query that runs again after more than this many others is not recognized.
_MAX_EARLIER_QUERIES = 32
_SHA256 = re.compile("[0-9a-f]{64}")


class SinkError(Exception):
    """The sink cannot continue. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction with the rows of one task. It is written and open; the producer id and epoch
    belong to no other transaction. With two-phase commit it has no timeout."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    two_phase_commit: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """`query_id` is None for batch writes with txnAppId, whose `batch_id` is txnVersion.
    `offsets_sha256` is None if the checkpoint cannot be read. `earlier_queries` have written to the
    sink before this one."""

    query_id: str | None
    batch_id: int
    offsets_sha256: str | None = None
    transactions: tuple[PreparedTransaction, ...] = ()
    earlier_queries: tuple[str, ...] = ()

    def without_transactions(self) -> Decision:
        return replace(self, transactions=())


class Verdict(Enum):
    WRITE = "write the rows"
    DRAIN = "consume the rows; they are written"


def verdict(sink: str, decided: Decision | None, query_id: str | None, batch_id: int) -> Verdict:
    """Return what a task does with its rows. SinkError if the batch must not be written.

    A batch write is skipped at or below the decided version, as in Delta.
    """
    if decided is None:
        return Verdict.WRITE
    if (decided.query_id is None) != (query_id is None):
        raise SinkError(
            f"the name {sink} is in use by "
            + ("batch writes with txnAppId" if query_id else "a stream")
            + ": choose another one for the option "
            + ("sinkName" if query_id else "txnAppId")
        )
    if decided.query_id != query_id:
        _check_new_query(sink, decided, query_id, batch_id)
        return Verdict.WRITE
    if batch_id > decided.batch_id:
        return Verdict.WRITE
    if batch_id < decided.batch_id and query_id is not None:
        raise SinkError(
            f"this is an older checkpoint: batch {batch_id} of query {query_id} comes before batch "
            f"{decided.batch_id}, which the sink {sink} has already written. Restore a checkpoint "
            f"that has batch {decided.batch_id}, or start a new query with an empty checkpoint and "
            "another sinkName, which writes its rows again"
        )
    return Verdict.DRAIN


def _check_new_query(sink: str, decided: Decision, query_id: str | None, batch_id: int) -> None:
    if query_id in decided.earlier_queries:
        reason = f"query {query_id} has written to sink {sink} before query {decided.query_id} did"
    elif batch_id > 0:
        reason = (
            f"query {query_id} starts at batch {batch_id}, but query {decided.query_id} has "
            f"written to sink {sink} last"
        )
    else:
        return
    raise SinkError(
        f"{reason}, so it is not known which of its batches are written. One sinkName belongs to "
        "one query: choose another one for one of the two"
    )


def earlier_queries(decided: Decision | None, query_id: str | None) -> tuple[str, ...]:
    """Return the queries before a query whose batch follows a decision."""
    if decided is None:
        return ()
    if decided.query_id is None or decided.query_id == query_id:
        return decided.earlier_queries
    return (*decided.earlier_queries, decided.query_id)[-_MAX_EARLIER_QUERIES:]


def check_drained(
    sink: str, decided: Decision, query_id: str | None, batch_id: int, offsets_sha256: str | None
) -> None:
    """SinkError if the drained batch is not the decided one: it has the same id, but other
    offsets. Its rows were consumed, and must not count as written."""
    if query_id is None or decided.batch_id != batch_id or decided.query_id != query_id:
        return
    if None not in (decided.offsets_sha256, offsets_sha256) and (
        decided.offsets_sha256 != offsets_sha256
    ):
        raise SinkError(
            f"this is an older checkpoint: the offsets of batch {batch_id} of query {query_id} are "
            f"not those that the sink {sink} has written. Restore a checkpoint with these offsets, "
            "or start a new query with an empty checkpoint and another sinkName, which writes its "
            "rows again"
        )


def to_json(decision: Decision) -> bytes:
    return json.dumps(
        {
            "version": _VERSION,
            "queryId": decision.query_id,
            "batchId": decision.batch_id,
            "offsetsSha256": decision.offsets_sha256,
            "transactions": [
                [listed.transactional_id, *listed.producer, listed.two_phase_commit]
                for listed in decision.transactions
            ],
            "earlierQueries": list(decision.earlier_queries),
        },
        separators=(",", ":"),
    ).encode()


def from_json(sink: str, value: bytes) -> Decision:
    """SinkError if the value is not a decision of this version."""
    try:
        return _decision(sink, json.loads(value))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SinkError(
            f"the decision of sink {sink} cannot be read ({error}): a newer version of Penstock "
            "may have written it"
        ) from error


def _decision(sink: str, fields: Mapping[str, Any]) -> Decision:
    if fields["version"] != _VERSION:
        raise ValueError(f"version {fields['version']!r}")
    query_id, sha256 = fields["queryId"], fields["offsetsSha256"]
    earlier = fields.get("earlierQueries", [])
    if not isinstance(earlier, list) or not all(isinstance(query, str) for query in earlier):
        raise ValueError("earlierQueries is not a list of texts")
    if not isinstance(query_id, str | None):
        raise ValueError("queryId is not text")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise ValueError("offsetsSha256 is not a SHA-256")
    return Decision(
        query_id,
        _integer(fields["batchId"], _MAX_INT64),
        sha256,
        tuple(_prepared(sink, *listed) for listed in fields["transactions"]),
        tuple(earlier[-_MAX_EARLIER_QUERIES:]),
    )


def _prepared(
    sink: str, transactional_id: str, producer_id: int, epoch: int, two_phase_commit: bool
) -> PreparedTransaction:
    if not transactional_id.startswith(f"{sink}/"):
        raise ValueError(f"{transactional_id!r} is not a transactional id of this sink")
    if not isinstance(two_phase_commit, bool):
        raise ValueError(f"{two_phase_commit!r} is neither true nor false")
    producer = ProducerIdAndEpoch(_integer(producer_id, _MAX_INT64), _integer(epoch, _MAX_EPOCH))
    return PreparedTransaction(transactional_id, producer, two_phase_commit)


def _integer(value: object, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise ValueError(f"{value!r} is not a number from 0 to {maximum}")
    return value
