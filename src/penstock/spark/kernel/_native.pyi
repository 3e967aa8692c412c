from penstock.ids import Buffer

MAX_RECORD_HEADERS: int
MIN_RECORD_BYTES: int
RECORD_OVERHEAD: int
HEADER_OVERHEAD: int

# Rows, null count, validity bitmap, offsets and data in Arrow's layout.
Column = tuple[int, int, bytearray, bytearray, bytearray]
# Validity bitmap, offsets, data, index of the first row, and number of rows.
Source = tuple[Buffer | None, Buffer | None, Buffer | None, int, int]

def decode(
    batches: list[tuple[Buffer, int, int, int, bool, int, int]],
    start: int,
    end: int,
    with_headers: bool,
    /,
) -> tuple[
    Column, Column, bytearray, bytearray, bytearray, tuple[Column, Column, Column] | None
]: ...
def encode(
    key: Source | None,
    value: Source | None,
    headers: tuple[Source | None, Source | None, Source | None],
    rows: Buffer | None,
    first: int,
    last: int,
    max_bytes: int,
    /,
) -> tuple[bytearray, int]: ...
def partitions(keys: Source, count: int, /) -> bytearray: ...
