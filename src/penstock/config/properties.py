"""Java's .properties format, with the file and line of every entry. Knows nothing of settings;
touches no files.

As java.util.Properties reads it: '#' and '!' begin comments; a key ends at '=', ':' or blanks; a
backslash at the end of a line continues it; \\t \\n \\r \\f and \\uXXXX are escapes, and any other
escaped character stands for itself; the last of two equal keys wins.
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
    """A file that is not in the format. The message says where."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value. `line` is the first of its lines, counted from 1; 0 for what comes
    from no file."""

    key: str
    value: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Properties:
    """The entries of a file that count, by key, and what its author should know."""

    entries: Mapping[str, Entry]
    warnings: tuple[str, ...] = ()


def decode_properties(data: bytes, file: str) -> Properties:
    """From the bytes of a file: UTF-8, or where they are not that, ISO-8859-1, which is what Java
    takes every file for."""
    if len(data) > limits.MAX_PROPERTIES_BYTES:
        raise PropertiesError(
            f"{file}: {len(data)} bytes are too many for a properties file, which may have "
            f"{limits.MAX_PROPERTIES_BYTES}"
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
                f"{entry.where}: {entry.key} was set before, in line {earlier.line}: the last "
                "value counts"
            )
        entries[entry.key] = entry
    return Properties(entries, tuple(warnings))


def format_properties(values: Mapping[str, str]) -> str:
    """The text that reads back as the values. ASCII, one line an entry, in the order given."""
    return "".join(
        f"{_escape(key, ' =:#!')}={_escape_value(value)}\n" for key, value in values.items()
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and empty ones, continuations joined, each with the number of its
    first line."""
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
    """Whether the line ends in an odd number of backslashes: an even number are escaped
    backslashes."""
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
    # Java's strings are UTF-16: characters beyond its 16 bits are written as two escapes.
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
    kept = value.lstrip(" ")
    return "\\ " * (len(value) - len(kept)) + _escape(kept, "=:#!")


def _escape_character(character: str, special: str) -> str:
    if character in _UNESCAPES:
        return _UNESCAPES[character]
    if character == "\\" or character in special:
        return "\\" + character
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
