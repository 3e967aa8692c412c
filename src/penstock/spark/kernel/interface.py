"""What a decode kernel is: the work that is done once a record. Two modules do it, `compiled` (C)
and `pure` (Python); `choice` picks one.

Must never know of topics, of what a fetch returned, or of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.ids import Buffer
from penstock.records.batch import BatchHeader

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

# The most that a record takes besides its key and value: attributes and time (one byte each: all
# records of a batch have its time), and five varints. The same for a header, which has two.
RECORD_OVERHEAD = 27
HEADER_OVERHEAD = 10


class Unpacked(NamedTuple):
    """A batch's records, decompressed, and the header that says how to read them."""

    header: BatchHeader
    records: Buffer


class Columns(NamedTuple):
    """One row a record. Headers are null where a record has none, as in Spark's own source."""

    key: pa.BinaryArray
    value: pa.BinaryArray
    offset: pa.Int64Array
    timestamp: pa.TimestampArray
    timestamp_type: pa.Int32Array
    headers: pa.ListArray | None


class Damaged(Exception):
    """Records that cannot be read, in the batch that begins at an offset."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


class Kernel(Protocol):
    def decode(
        self, batches: Sequence[Unpacked], start: int, end: int, *, headers: bool
    ) -> Columns:
        """The records of all batches with start <= offset < end. Damaged where they are not what
        the headers say, wanted or not."""

    def encode(
        self,
        key: pa.BinaryArray | None,
        value: pa.BinaryArray,
        headers: pa.ListArray | None,
        rows: pa.Int64Array | None,
        first: int,
        max_bytes: int,
    ) -> tuple[Buffer, int]:
        """The records of a batch and how many they are: from `first` on of those that `rows` names,
        as many as certainly fit into max_bytes, but one at least. ValueError where a header has no
        key or a row does not exist."""

    def partitions(self, keys: pa.BinaryArray, count: int) -> pa.Int32Array:
        """The partition of each key by Kafka's hash, null for null."""
