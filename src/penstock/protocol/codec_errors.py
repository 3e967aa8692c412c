"""Exceptions of compiled codecs, and their slow paths for tagged fields.

A label names the message, its version and the field. While messages are valid, only the functions
for tagged fields run.
"""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import Buffer
from penstock.limits import MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from penstock.protocol.primitives import finish_uvarint, read_uvarint


def truncated(label: str) -> ProtocolError:
    return ProtocolError(f"{label}: the message is truncated")


def not_utf8(label: str, error: UnicodeDecodeError) -> ProtocolError:
    return ProtocolError(
        f"{label}: a string is not valid UTF-8: {error.reason} at its byte {error.start}"
    )


def bad_length(label: str, length: int, left: int) -> ProtocolError:
    if length == -1:
        return ProtocolError(f"{label}: null is not allowed in this version")
    if length < 0:
        return ProtocolError(f"{label}: negative length {length}")
    if length > left:
        return ProtocolError(f"{label}: length {length} exceeds the {left} bytes left")
    return ProtocolError(
        f"{label}: length {length} exceeds the maximum string length {MAX_STRING_BYTES}"
    )


def bad_count(label: str, count: int, left: int, element_size: int) -> ProtocolError:
    if count == -1:
        return ProtocolError(f"{label}: null is not allowed in this version")
    if count < 0:
        return ProtocolError(f"{label}: negative count {count}")
    if count * element_size > left:
        return ProtocolError(
            f"{label}: {count} elements of at least {element_size} bytes exceed the {left} bytes "
            "left"
        )
    return ProtocolError(
        f"{label}: with these {count} elements the message exceeds the limit of decoded objects"
    )


def bad_marker(label: str, marker: int, null: int) -> ProtocolError:
    return ProtocolError(f"{label}: marker {marker} is neither 1 (present) nor {null} (null)")


def bad_tag_size(label: str, tag: int, beyond: int) -> ProtocolError:
    difference = f"{beyond} bytes longer" if beyond > 0 else f"{-beyond} bytes shorter"
    return ProtocolError(f"{label}: tagged field {tag} is {difference} than its size")


def tag_count(
    buffer: Buffer, position: int, first_byte: int, budget: int, label: str
) -> tuple[int, int, int]:
    """Read the number of tagged fields, whose first byte precedes `position`. Return it, the
    position after it, and the remaining budget of decoded objects."""
    count = first_byte
    if count > 127:
        count, position = finish_uvarint(buffer, position, first_byte)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(
            f"{label}: {count} tagged fields exceed the maximum of {MAX_TAGGED_FIELDS}"
        )
    if count > budget:
        raise bad_count(f"{label}: tagged fields", count, len(buffer) - position, 0)
    return count, position, budget - count


def tag_head(buffer: Buffer, position: int, label: str) -> tuple[int, int, int]:
    """Return a tagged field's tag, and the positions of its value's start and end."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        raise bad_length(f"{label}: tagged field {tag}", size, len(buffer) - position)
    return tag, position, position + size


def skip_tags(
    buffer: Buffer, position: int, first_byte: int, budget: int, label: str
) -> tuple[int, int]:
    """Skip the tagged fields of a struct that declares none; a newer peer may send them."""
    count, position, budget = tag_count(buffer, position, first_byte, budget, label)
    for _ in range(count):
        tag, size = buffer[position], buffer[position + 1]
        if tag < 0x80 and size < 0x80 and position + 2 + size <= len(buffer):
            # The common case, five times as fast: a hostile message may have a million of these.
            position += 2 + size
        else:
            _, _, position = tag_head(buffer, position, label)
    return position, budget


def not_carried(label: str, field: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{label} cannot carry {field}, which differs from its default",
    )


def not_nullable(label: str, field: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{label}: {field} is null, which this version does not allow",
    )


def too_long(label: str, length: int) -> ValueError:
    return ValueError(
        f"{label}: length {length} exceeds the maximum string length {MAX_STRING_BYTES}"
    )


def not_encodable(label: str, error: Exception) -> ValueError:
    return ValueError(f"{label} cannot be encoded: {error}")
