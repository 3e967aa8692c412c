"""What compiled codecs call when something is wrong: the exceptions, with their texts, and the slow
paths around tagged fields.

A label names the message, its version and the field. Nothing here runs while messages are as they
should be, except for tagged fields.
"""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import Buffer
from penstock.limits import MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from penstock.protocol.primitives import finish_uvarint, read_uvarint


def truncated(label: str) -> ProtocolError:
    return ProtocolError(f"{label}: the bytes end before the message does")


def not_utf8(label: str, error: UnicodeDecodeError) -> ProtocolError:
    return ProtocolError(
        f"{label}: a string is not valid UTF-8: {error.reason} at its byte {error.start}"
    )


def bad_length(label: str, length: int, left: int) -> ProtocolError:
    if length == -1:
        return ProtocolError(f"{label}: is null, which this version does not allow")
    if length < 0:
        return ProtocolError(f"{label}: has the negative length {length}")
    if length > left:
        return ProtocolError(f"{label}: claims a length of {length} bytes, and {left} are left")
    return ProtocolError(
        f"{label}: is {length} bytes long, and a string has at most {MAX_STRING_BYTES}"
    )


def bad_count(label: str, count: int, left: int, element_size: int) -> ProtocolError:
    if count == -1:
        return ProtocolError(f"{label}: is null, which this version does not allow")
    if count < 0:
        return ProtocolError(f"{label}: has the negative count {count}")
    if count * element_size > left:
        return ProtocolError(
            f"{label}: claims {count} elements of at least {element_size} bytes, and {left} bytes "
            "are left"
        )
    return ProtocolError(
        f"{label}: with its {count} elements the message has more parts than are allowed"
    )


def bad_marker(label: str, marker: int, null: int) -> ProtocolError:
    return ProtocolError(
        f"{label}: begins with {marker}, where 1 says that it is there and {null} that it is null"
    )


def bad_tag_size(label: str, tag: int, beyond: int) -> ProtocolError:
    how = f"{beyond} bytes more" if beyond > 0 else f"{-beyond} bytes less"
    return ProtocolError(f"{label}: tagged field {tag} takes {how} than its size says")


def tag_count(
    buffer: Buffer, position: int, first_byte: int, budget: int, label: str
) -> tuple[int, int, int]:
    """The number of tagged fields whose first byte was read just before position, the position
    after it, and what is left of the budget."""
    count = first_byte
    if count > 127:
        count, position = finish_uvarint(buffer, position, first_byte)
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolError(
            f"{label}: claims {count} tagged fields, and a struct may have {MAX_TAGGED_FIELDS}"
        )
    if count > budget:
        raise bad_count(f"{label}: tagged fields", count, len(buffer) - position, 0)
    return count, position, budget - count


def tag_head(buffer: Buffer, position: int, label: str) -> tuple[int, int, int]:
    """A tagged field's tag, where its value begins, and where it ends."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        raise bad_length(f"{label}: tagged field {tag}", size, len(buffer) - position)
    return tag, position, position + size


def skip_tags(
    buffer: Buffer, position: int, first_byte: int, budget: int, label: str
) -> tuple[int, int]:
    """Passes over tagged fields of a struct that knows none; a newer peer may send them."""
    count, position, budget = tag_count(buffer, position, first_byte, budget, label)
    for _ in range(count):
        tag, size = buffer[position], buffer[position + 1]
        if tag < 0x80 and size < 0x80 and position + 2 + size <= len(buffer):
            # A hostile message may have a million of these, and this way they take a fifth of the
            # time.
            position += 2 + size
        else:
            _, _, position = tag_head(buffer, position, label)
    return position, budget


def not_carried(label: str, field: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{label} cannot carry {field}, which is set to something other than its default",
    )


def not_nullable(label: str, field: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{label}: {field} is null, which this version does not allow",
    )


def too_long(label: str, length: int) -> ValueError:
    return ValueError(
        f"{label}: is {length} bytes long, and a string has at most {MAX_STRING_BYTES}"
    )


def unfit(label: str, error: Exception) -> ValueError:
    return ValueError(f"{label} cannot be encoded: {error}")
