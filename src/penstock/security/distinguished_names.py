"""The subject of a certificate as Java's X500Principal.getName prints it (RFC 2253). PURE.

Kafka's principals and ssl.principal.mapping.rules are about this text: the last element comes
first, nine types have keywords, and all others are printed as their object identifier with the
value in hexadecimal, an e-mail address included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_SEQUENCE, _SET, _OID, _EXPLICIT_0 = 0x30, 0x31, 0x06, 0xA0

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# ASN.1's types of text: UTF8String, PrintableString, T61String, IA5String, GeneralString,
# UniversalString, BMPString. Java reads the bytes of all of them as UTF-8.
_TEXT = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E)
_ESCAPED = ',=+<>#;"\\'


class _Value(NamedTuple):
    """One value of DER: its tag, where its content is, and all of its bytes."""

    tag: int
    content: memoryview
    whole: memoryview


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises ValueError if it is not one."""
    fields = list(_values(_content(_only(memoryview(certificate)), _SEQUENCE)))
    if not fields:
        raise ValueError("the certificate has no content")
    parts = list(_values(_content(fields[0], _SEQUENCE)))
    # version [0] is absent in certificates of version 1; then serial, algorithm, issuer, validity.
    at = 5 if parts and parts[0].tag == _EXPLICIT_0 else 4
    if len(parts) <= at:
        raise ValueError("the certificate has no subject")
    return distinguished_name(bytes(parts[at].whole))


def distinguished_name(name: bytes) -> str:
    """Return the text of a Name in DER. Raises ValueError if it is not one."""
    elements = [
        "+".join(_attribute(attribute) for attribute in _values(_content(element, _SET)))
        for element in _values(_content(_only(memoryview(name)), _SEQUENCE))
    ]
    return ",".join(reversed(elements))


def _attribute(attribute: _Value) -> str:
    parts = list(_values(_content(attribute, _SEQUENCE)))
    if len(parts) != 2:
        raise ValueError(f"an attribute of a name has {len(parts)} parts in place of 2")
    identifier, value = _identifier(_content(parts[0], _OID)), parts[1]
    keyword = _KEYWORDS.get(identifier)
    hexadecimal = f"#{bytes(value.whole).hex()}"
    if keyword is None:
        return f"{identifier}={hexadecimal}"
    if value.tag not in _TEXT:
        return f"{keyword}={hexadecimal}"
    try:
        return f"{keyword}={_escape(bytes(value.content).decode())}"
    except UnicodeDecodeError:
        # Java puts U+FFFD in place of these bytes, so that different names have the same text.
        return f"{keyword}={hexadecimal}"


def _escape(text: str) -> str:
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    return "".join(
        "\\00"
        if character == "\0"
        else "\\" + character
        if character in _ESCAPED or not lead <= index < trail
        else character
        for index, character in enumerate(text)
    )


def _identifier(content: memoryview) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _content(value: _Value, tag: int) -> memoryview:
    if value.tag != tag:
        raise ValueError(f"found tag {value.tag:#x} in place of {tag:#x}")
    return value.content


def _only(data: memoryview) -> _Value:
    values = list(_values(data))
    if len(values) != 1:
        raise ValueError(f"found {len(values)} values of DER in place of one")
    return values[0]


def _values(data: memoryview) -> Iterator[_Value]:
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a value of DER is cut off")
        tag, length, start = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or start + size > len(data):
                raise ValueError("a value of DER has no valid length")
            length, start = int.from_bytes(data[start : start + size]), start + size
        if start + length > len(data):
            raise ValueError("a value of DER is cut off")
        yield _Value(tag, data[start : start + length], data[at : start + length])
        at = start + length
