"""Java's .properties format: edge cases and round trips."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import limits
from penstock.config.properties import (
    PropertiesError,
    decode_properties,
    format_properties,
    parse_properties,
)


def values_of(text: str) -> dict[str, str]:
    return {key: entry.value for key, entry in parse_properties(text, "x").entries.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n \t\n\f\n", {}),
        ("# a=1\n! b=2\n  # c=3\n", {}),
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a \t:\t 1", {"a": "1"}),
        ("a==1", {"a": "=1"}),
        ("a=:1", {"a": ":1"}),
        ("a = = 1", {"a": "= 1"}),
        ("  a=1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   2\\\n\t3", {"a": "123"}),
        ("a=1\\\r\n2", {"a": "12"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("# comment \\\na=1", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\n2", {"a": "1\\2"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n\n#c\na=1", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("\\u0061=1", {"a": "1"}),
        ("\\#a=1", {"#a": "1"}),
        ("a=C:\\\\logs", {"a": "C:\\logs"}),
        ("a=1\x852", {"a": "1\x852"}),
    ],
)
def test_edge_cases(text: str, expected: dict[str, str]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\uuuuu", "a=1\n\nb=\\u", "a=\\ud83d"])
def test_malformed_escapes_are_refused_with_file_and_line(text: str) -> None:
    line = text.count("\n") + 1
    with pytest.raises(PropertiesError, match=rf"^server\.properties:{line}: "):
        parse_properties(text, "server.properties")


def test_entries_have_the_number_of_their_first_line() -> None:
    entries = parse_properties("# one\n\na=1\\\n2\\\n3\nb=4\n", "f").entries
    assert {key: entry.where for key, entry in entries.items()} == {"a": "f:3", "b": "f:6"}


def test_last_of_two_equal_keys_counts_with_a_warning() -> None:
    properties = parse_properties("a=1\nb=2\na=3\n", "f")
    assert properties.entries["a"].value == "3"
    assert properties.warnings == ("f:3: a is also set in line 1; the last value counts",)


def test_bytes_are_utf_8_or_latin_1() -> None:
    assert decode_properties("\ufeffa=é".encode(), "f").entries["a"].value == "é"
    assert decode_properties("a=é".encode("iso-8859-1"), "f").entries["a"].value == "é"


def test_too_large_file_is_refused() -> None:
    assert decode_properties(b"#" * limits.MAX_PROPERTIES_BYTES, "f").entries == {}
    with pytest.raises(PropertiesError, match="more than the maximum"):
        decode_properties(b"#" * (limits.MAX_PROPERTIES_BYTES + 1), "f")


texts = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(texts, texts))
@example({"": "", " ": "  a ", "\\": "\\", "#": "!", "a\nb": "\r\n\\u0041", "😀": "é"})
def test_formatted_values_read_back(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert text.isascii()
    assert values_of(text) == values


@given(st.text(st.sampled_from("ab=: \t\f\\#!\r\n\u00e9u0")))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        entries = parse_properties(text, "f").entries
    except PropertiesError:
        assert "\\u" in text
    else:
        assert all(1 <= entry.line <= 1 + len(text) for entry in entries.values())
