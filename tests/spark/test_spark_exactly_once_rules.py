"""The rules of the exactly-once sink that need no cluster: decisions, slots, names, inline rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.ids import TopicPartition
from penstock.records.batch import TRANSACTIONAL_BIT, crc_matches, read_header
from penstock.records.compression import Codec
from penstock.records.record import rows_of
from penstock.spark.kernel.columns import encode
from penstock.spark.options import OptionError, sink_options
from penstock.spark.options.sink import TxnVersion
from penstock.spark.sink.checkpoint import (
    default_sink_name,
    local_directory,
    offsets_sha256,
    warn_without_offsets,
)
from penstock.spark.sink.decision import (
    Decision,
    PreparedTransaction,
    SinkError,
    Verdict,
    check_drained,
    earlier_queries,
    from_json,
    to_json,
    verdict,
)
from penstock.spark.sink.exactly_once import (
    ExactlyOnceBatchWriter,
    ExactlyOnceStreamWriter,
    task_results,
)
from penstock.spark.sink.inline import transactional_batches
from penstock.spark.sink.lease import Lease
from penstock.spark.sink.rows import EncodedRows
from penstock.spark.sink.slots import Slots, slots_of
from penstock.spark.sink.task import TaskResult

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
SHA = hashlib.sha256(b"offsets").hexdigest()
PREPARED = PreparedTransaction("sink/nonce/0", ProducerIdAndEpoch(7, 3))
DECIDED = Decision("query", 5, SHA, (PREPARED,))
WRITE, DRAIN = Verdict.WRITE, Verdict.DRAIN


def lease(epoch: int = 0, producer_id: int = 1) -> Lease:
    return Lease("sink", ProducerIdAndEpoch(producer_id, epoch), None, is_v2=True)


# Decisions


@pytest.mark.parametrize(
    ("decided", "query_id", "batch_id", "expected"),
    [
        (None, "query", 0, WRITE),
        (DECIDED, "query", 6, WRITE),
        (DECIDED, "query", 9, WRITE),
        (DECIDED, "query", 5, DRAIN),
        # A deleted checkpoint is a new query.
        (DECIDED, "other", 0, WRITE),
        (Decision(None, 5), None, 6, WRITE),
        (Decision(None, 5), None, 5, DRAIN),
        (Decision(None, 5), None, 2, DRAIN),
    ],
)
def test_verdict(
    decided: Decision | None, query_id: str | None, batch_id: int, expected: Verdict
) -> None:
    assert verdict("sink", decided, query_id, batch_id) is expected


@pytest.mark.parametrize(
    ("decided", "query_id", "message"),
    [
        (DECIDED, "query", "older checkpoint: batch 4 of query query comes before batch 5"),
        (DECIDED, "other", "query other starts at batch 4, but query query"),
        (
            replace(DECIDED, earlier_queries=("other",)),
            "other",
            "query other has written to sink sink before query query",
        ),
        (DECIDED, None, "in use by a stream: choose another one for the option txnAppId"),
        (Decision(None, 5), "query", "in use by batch writes with txnAppId"),
    ],
)
def test_refused_batches(decided: Decision, query_id: str | None, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        verdict("sink", decided, query_id, 4)


@pytest.mark.parametrize("sha256", [SHA, None])
def test_drained_batch_with_the_same_or_unknown_offsets(sha256: str | None) -> None:
    check_drained("sink", DECIDED, "query", 5, sha256)
    check_drained("sink", replace(DECIDED, offsets_sha256=None), "query", 5, SHA)


def test_drained_batch_with_other_offsets_is_refused() -> None:
    with pytest.raises(SinkError, match="older checkpoint: the offsets of batch 5"):
        check_drained("sink", DECIDED, "query", 5, "0" * 64)


@pytest.mark.parametrize(
    "decision",
    [
        DECIDED,
        Decision(None, 0),
        Decision("q", 2**62),
        Decision("q", 0, earlier_queries=("o", "p")),
    ],
)
def test_decisions_survive_json(decision: Decision) -> None:
    assert from_json("sink", to_json(decision)) == decision


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"batchId": -1}, "-1 is not a number"),
        ({"batchId": True}, "True is not a number"),
        ({"queryId": 4}, "queryId is not text"),
        ({"earlierQueries": [4]}, "earlierQueries"),
        ({"earlierQueries": "ab"}, "earlierQueries"),
        ({"offsetsSha256": "abc"}, "not a SHA-256"),
        ({"transactions": [["other/nonce/0", 1, 1, True]]}, "not a transactional id of this sink"),
        ({"transactions": [["sink/nonce/0", 1, 2**15, True]]}, "32768 is not a number"),
        ({"transactions": [["sink/nonce/0", 1, 1, 1]]}, "neither true nor false"),
        ({"transactions": [["sink/nonce/0"]]}, "missing"),
    ],
)
def test_unknown_decisions_are_refused(changes: dict[str, object], reason: str) -> None:
    fields = json.loads(to_json(DECIDED)) | changes
    with pytest.raises(SinkError, match=reason):
        from_json("sink", json.dumps(fields).encode())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_values_that_are_no_decision(value: bytes) -> None:
    with pytest.raises(SinkError, match="cannot be read"):
        from_json("sink", value)


def test_earlier_queries_of_a_sink() -> None:
    assert earlier_queries(None, "a") == ()
    assert earlier_queries(Decision("a", 3), "a") == ()
    assert earlier_queries(Decision("a", 3, earlier_queries=("z",)), "b") == ("z", "a")
    assert earlier_queries(Decision(None, 3), None) == ()
    many = tuple(str(number) for number in range(100))
    assert earlier_queries(Decision("a", 3, earlier_queries=many), "b")[-2:] == ("99", "a")
    assert len(earlier_queries(Decision("a", 3, earlier_queries=many), "b")) == 32


# Commit messages


def result(of: Lease, batch_id: int = 5, rows: int = 0, drained: bool = False) -> TaskResult:
    return TaskResult(of, "query", batch_id, rows, drained)


def test_results_of_one_lease() -> None:
    results = [result(lease()), result(lease(), rows=3)]
    assert task_results(results, 5) == results


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([result(lease()), None], "1 of 2 tasks of batch 5 have no result"),
        ([result(lease(1)), result(lease(2))], "different leases"),
        ([result(lease()), result(lease(), drained=True)], "different leases"),
        ([result(lease(), 4)], "a task of batch 4 is to be committed with batch 5"),
    ],
)
def test_results_that_are_not_committed(messages: list[TaskResult | None], reason: str) -> None:
    with pytest.raises(SinkError, match=reason):
        task_results(messages, 5)


# Slots


def test_tasks_of_a_lease_have_different_slots_and_later_leases_reuse_them() -> None:
    slots = Slots("sink", "nonce")
    assert [slots.take(lease(1)) for _task in range(3)] == [
        f"sink/nonce/{slot}" for slot in range(3)
    ]
    assert [slots.take(lease(2)) for _task in range(2)] == ["sink/nonce/0", "sink/nonce/1"]


def test_a_task_of_an_older_lease_does_not_take_a_slot_of_a_newer_one() -> None:
    slots = Slots("sink", "nonce")
    assert slots.take(lease(2)) == "sink/nonce/0"
    assert slots.take(lease(1)) == "sink/nonce/1"
    assert slots.take(lease(2)) == "sink/nonce/1"


def test_leases_with_different_producer_ids_share_no_slots() -> None:
    slots = Slots("sink", "nonce")
    assert slots.take(lease(32_766, producer_id=9)) == "sink/nonce/0"
    assert slots.take(lease(0, producer_id=1)) == "sink/nonce/1"


def test_a_process_has_one_nonce_per_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    here = slots_of("first")
    assert slots_of("first") is here
    assert slots_of("second") is not here
    first = here.take(lease())
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert slots_of("first").take(lease()).split("/")[1] != first.split("/")[1]


# Names and options


def test_default_sink_name_is_the_query_id(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"8ae1"}')
    for location in (str(tmp_path), tmp_path.as_uri(), f"file:{tmp_path}"):
        assert default_sink_name(location) == "8ae1"


@pytest.mark.parametrize("metadata", [None, "", "{}", '{"id": "a/b"}', "[]"])
def test_checkpoint_without_a_query_id(tmp_path: Path, metadata: str | None) -> None:
    if metadata is not None:
        (tmp_path / "metadata").write_text(metadata)
    with pytest.raises(OptionError, match=r"sinkName|without a slash"):
        default_sink_name(str(tmp_path))


@pytest.mark.parametrize("location", [None, "hdfs://host/c", "s3a://bucket/c"])
def test_checkpoint_that_is_not_local(location: str | None) -> None:
    with pytest.raises(OptionError, match="add the option sinkName"):
        default_sink_name(location)
    assert offsets_sha256(location, 0) is None


@pytest.mark.parametrize("location", [None, "s3a://bucket/c"])
def test_checkpoint_without_offsets_is_warned_of_once(
    location: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    sink = f"warned-{location}"
    for _time in range(2):
        warn_without_offsets(sink, location)
    (record,) = caplog.records
    assert f"sink {sink} cannot read the offsets" in record.getMessage()


def test_local_checkpoint_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    warn_without_offsets("local", "/c")
    assert not caplog.records


def test_offsets_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_bytes(b"offsets")
    assert offsets_sha256(str(tmp_path), 5) == SHA
    assert offsets_sha256(str(tmp_path), 6) is None
    assert local_directory("file:/a%20b") == Path("/a b")


def test_delivery_options() -> None:
    stream = sink_options({**SERVERS, "checkpointLocation": "/c"}, streaming=True)
    assert (stream.exactly_once, stream.sink_name, stream.checkpoint_location) == (True, None, "/c")
    named = sink_options({**SERVERS, "SINKNAME": " totals "}, streaming=True)
    assert ExactlyOnceStreamWriter(named).sink_name() == "totals"
    assert not sink_options({**SERVERS, "delivery": "At-Least-Once"}, streaming=True).exactly_once
    batch = sink_options({**SERVERS, "txnAppId": "app", "txnVersion": "7", "topic": "out"})
    assert (batch.exactly_once, batch.txn) == (True, TxnVersion("app", 7))
    # As in Delta, where each table has its own versions.
    assert ExactlyOnceBatchWriter(batch).sink_name() == "app:out"
    assert not sink_options(SERVERS).exactly_once


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        ({"sinkName": "a/b"}, True, "without a slash"),
        ({"sinkName": " "}, True, "1 to 200 printable characters"),
        ({"sinkName": "x" * 201}, True, "1 to 200 printable characters"),
        ({"delivery": "at-most-once"}, True, "must be exactly-once or at-least-once"),
        ({"kafka.acks": "1"}, True, "exactly-once delivery requires kafka.acks=all"),
        ({"kafka.enable.idempotence": "false"}, True, "set the option delivery to at-least-once"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "options of batch writes"),
        ({"delivery": "exactly-once"}, False, "set txnAppId and txnVersion"),
        ({"txnAppId": "a"}, False, "belong together"),
        ({"txnVersion": "1"}, False, "belong together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "must be an integer of at least 0"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, False, "without a slash"),
        ({"txnAppId": "a:b", "txnVersion": "1"}, False, "txnAppId is 'a:b', but must not contain"),
        (
            {"txnAppId": "a", "txnVersion": "1", "topic": "t" * 250},
            False,
            "topic is 'ttt",
        ),
        ({"sinkName": "a"}, False, "for a batch write set txnAppId and txnVersion"),
        (
            {"txnAppId": "a", "txnVersion": "1", "delivery": "at-least-once"},
            False,
            "remove one of the two",
        ),
    ],
)
def test_invalid_delivery_options(options: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        sink_options({**SERVERS, **options}, streaming=streaming)
    assert message in str(raised.value)


# Inline rows


def encoded(partition: TopicPartition, *values: str, codec: Codec = Codec.LZ4) -> EncodedRows:
    columns = {
        "key": pa.array([None if value == "b" else value for value in values], pa.string()),
        "value": pa.array(values),
        "headers": pa.array(
            [[{"key": "h", "value": b"1"}] if value == "a" else None for value in values],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    (only,) = encode(batch, max_bytes=1_000_000, timestamp_ms=1000 + len(values), codec=codec)
    return EncodedRows(partition, only.records, only.batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_inline_batches_of_a_partition_become_one(codec: Codec) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    batches = list(
        transactional_batches(
            [
                encoded(first, "a", "b", codec=codec),
                encoded(second, "c", codec=codec),
                encoded(first, "d", codec=codec),
            ],
            ProducerIdAndEpoch(7, 3),
            codec,
            1_000_000,
        )
    )
    assert [partition for partition, _batch in batches] == [first, second]
    for _partition, batch in batches:
        header = read_header(batch)
        assert crc_matches(batch, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
        assert header.attributes == codec | TRANSACTIONAL_BIT
        assert header.base_offset == 0
    assert [row[2:] for row in rows_of(batches[0][1], read_header(batches[0][1]))] == [
        (b"a", b"a", (("h", b"1"),)),
        (None, b"b", ()),
        (b"d", b"d", ()),
    ]
    assert read_header(batches[0][1]).max_timestamp == 1002


def test_inline_batches_are_divided_at_the_batch_size() -> None:
    partition = TopicPartition("t", 0)
    rows = [encoded(partition, *(f"{task}-{row}" for row in range(20))) for task in range(3)]
    batches = [
        batch
        for _partition, batch in transactional_batches(
            rows, ProducerIdAndEpoch(7, 3), Codec.NONE, 400
        )
    ]
    assert len(batches) > 2
    headers = [read_header(batch) for batch in batches]
    assert [header.base_sequence for header in headers[1:]] == [
        header.base_sequence + header.record_count for header in headers[:-1]
    ]
    assert [
        row[3]
        for batch, header in zip(batches, headers, strict=True)
        for row in rows_of(batch, header)
    ] == [f"{task}-{row}".encode() for task in range(3) for row in range(20)]
