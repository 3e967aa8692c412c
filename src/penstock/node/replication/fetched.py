"""Batches as a leader sent them, before the log checks them: where they begin, and which are
whole."""

from __future__ import annotations

import struct
from typing import cast

from penstock.ids import Buffer
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.batch import LENGTH_OVERHEAD

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


def first_offset(records: Buffer) -> int:
    return cast(int, _BASE_OFFSET.unpack_from(records)[0])


def whole_batches(records: memoryview) -> Buffer:
    """Without the last one if it is cut. A length that no batch can have is left to the log's
    checks."""
    position, end = 0, len(records)
    while position + LENGTH_OVERHEAD <= end:
        size = LENGTH_OVERHEAD + _LENGTH.unpack_from(records, position + LENGTH_OVERHEAD - 4)[0]
        if size < BATCH_HEADER_BYTES:
            return records
        if position + size > end:
            break
        position += size
    return records if position == end else records[:position]
