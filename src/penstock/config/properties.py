"""Java's .properties format, with the file and line of every entry.

As java.util.Properties reads it: '#' and '!' start comments; a key ends at '=', ':' or white space;
a backslash at the end of a line continues it; \\t \\n \\r \\f and \\uXXXX are escapes, and any
other escaped character stands for itself; the last of two equal keys counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock import limits

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNESCAPES = {character: "\\" + name for name, character in _ESCAPES.items()}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)


class PropertiesError(ValueError):
    """A malformed file. The message has the file and line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value. `line` is that of its first line, counted from 1; 0 if it is not from
    a file."""

    key: str
    value: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Properties:
    """The entries of a file by key, and warnings for its author."""

    entries: Mapping[str, Entry]
    warnings: tuple[str, ...] = ()


def decode_properties(data: bytes, file: str) -> Properties:
    """Decode the bytes of a file as UTF-8. If they are invalid, decode ISO-8859-1, as Java does for
    every file."""
    if len(data) > limits.MAX_PROPERTIES_BYTES:
        raise PropertiesError(
            f"{file} has {len(data)} bytes, more than the maximum of "
            f"{limits.MAX_PROPERTIES_BYTES} for a properties file"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    return parse_properties(text.removeprefix("\ufeff"), file)


def parse_properties(text: str, file: str) -> Properties:
    entries: dict[str, Entry] = {}
    warnings = []
    for line, logical in _logical_lines(text):
        entry = _parse_entry(logical, file, line)
        if earlier := entries.get(entry.key):
            warnings.append(
                f"{entry.where}: {entry.key} is also set in line {earlier.line}; the last value "
                "counts"
            )
        entries[entry.key] = entry
    return Properties(entries, tuple(warnings))


def format_properties(values: Mapping[str, str]) -> str:
    """Format the values as ASCII text, one line per entry, in order."""
    return "".join(
        f"{_escape(key, ' =:#!')}={_escape_value(value)}\n" for key, value in values.items()
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with continuations joined, and the number of their first line. Comments and empty
    lines are skipped."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, line in lines:
        logical = line.lstrip(_BLANKS)
        if logical.startswith(("#", "!")):
            continue
        parts = []
        while _continues(logical):
            parts.append(logical[:-1])
            # At the end of the file the backslash is dropped.
            logical = next(lines, (0, ""))[1].lstrip(_BLANKS)
        parts.append(logical)
        if joined := "".join(parts):
            yield number, joined


def _continues(line: str) -> bool:
    """Return True if the line ends in an odd number of backslashes: an even number are escaped
    ones."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_entry(logical: str, file: str, line: int) -> Entry:
    end = _key_end(logical)
    rest = logical[end:].lstrip(_BLANKS)
    if rest.startswith(("=", ":")):
        rest = rest[1:].lstrip(_BLANKS)
    try:
        return Entry(_unescape(logical[:end]), _unescape(rest), file, line)
    except ValueError as error:
        raise PropertiesError(f"{file}:{line}: {error}") from error


def _key_end(logical: str) -> int:
    position = 0
    while position < len(logical) and logical[position] not in "=:" + _BLANKS:
        position += 2 if logical[position] == "\\" else 1
    return min(position, len(logical))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts, position = [], 0
    while (escape := text.find("\\", position)) >= 0:
        parts.append(text[position:escape])
        name = text[escape + 1 : escape + 2]
        if name == "u":
            parts.append(_unicode_escape(text, escape))
        else:
            parts.append(_ESCAPES.get(name, name))
        position = escape + (6 if name == "u" else 2)
    parts.append(text[position:])
    # Java strings are UTF-16: characters outside the BMP are written as two escapes.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _unicode_escape(text: str, escape: int) -> str:
    digits = text[escape + 2 : escape + 6]
    if not _UNICODE.fullmatch(digits):
        raise ValueError(
            f"malformed \\uXXXX escape: \\u{digits} (four hexadecimal digits must follow; write "
            "\\\\ for a backslash)"
        )
    return chr(int(digits, 16))


def _escape(text: str, special: str) -> str:
    return "".join(_escape_character(character, special) for character in text)


def _escape_value(value: str) -> str:
    stripped = value.lstrip(" ")
    return "\\ " * (len(value) - len(stripped)) + _escape(stripped, "=:#!")


def _escape_character(character: str, special: str) -> str:
    if character in _UNESCAPES:
        return _UNESCAPES[character]
    if character == "\\" or character in special:
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
