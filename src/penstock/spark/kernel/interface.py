"""The Kernel protocol for the work that is done per record. `compiled` implements it in C, `pure`
in Python.

A kernel knows nothing of topics, Fetch responses and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.ids import Buffer
from penstock.records.batch import BatchHeader

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

# Upper bounds of a record's size without key and value: attributes and timestamp delta (one byte
# each, since all records have the timestamp of the batch) and five varints. A header has two
# varints.
RECORD_OVERHEAD = 27
HEADER_OVERHEAD = 10


class DecompressedBatch(NamedTuple):
    """The header of a record batch, and its records after decompression."""

    header: BatchHeader
    records: Buffer


class Columns(NamedTuple):
    """One row per record. Headers are null for a record without headers, as in Spark's own Kafka
    connector."""

    key: pa.BinaryArray
    value: pa.BinaryArray
    offset: pa.Int64Array
    timestamp: pa.TimestampArray
    timestamp_type: pa.Int32Array
    headers: pa.ListArray | None


class CorruptRecords(Exception):
    """The records of the batch with this base offset cannot be decoded."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


class Kernel(Protocol):
    def decode(
        self, batches: Sequence[DecompressedBatch], start: int, end: int, *, headers: bool
    ) -> Columns:
        """Return the records of all batches with start <= offset < end.

        CorruptRecords if any record of the batches contradicts its header, inside the offsets or
        not.
        """

    def encode(
        self,
        key: pa.BinaryArray | None,
        value: pa.BinaryArray,
        headers: pa.ListArray | None,
        rows: pa.Int64Array | None,
        first: int,
        max_bytes: int,
    ) -> tuple[Buffer, int]:
        """Return the records of one batch and their count: the rows that `rows` lists, from index
        `first` on, as many as certainly fit into max_bytes, and at least one.

        ValueError if a header has no key or a row does not exist.
        """

    def partitions(self, keys: pa.BinaryArray, count: int) -> pa.Int32Array:
        """Return the partition of each key by Kafka's murmur2 hash; null for a null key."""
