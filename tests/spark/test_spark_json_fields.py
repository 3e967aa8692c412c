"""Fields of JSON values, parsed by the source."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from penstock.limits import SPARK_JSON_ROWS
from penstock.spark.options.columns import RECORD_COLUMNS, JsonField, JsonType, column_options
from penstock.spark.source import json_fields
from penstock.spark.source.json_fields import JsonFields

FIELDS = "name STRING, count LONG, share DOUBLE, paid BOOLEAN"


def parse(*values: bytes | None, fields: str = FIELDS) -> list[dict[str, object] | None]:
    parser = JsonFields(column_options({"jsonFields": fields}).json_fields)
    parsed = parser.parse(pa.array(values, pa.binary()))
    parsed.validate(full=True)
    rows: list[dict[str, object] | None] = parsed.to_pylist()
    return rows


def row(
    name: str | None = None,
    count: int | None = None,
    share: float | None = None,
    paid: bool | None = None,
) -> dict[str, object]:
    return {"name": name, "count": count, "share": share, "paid": paid}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"name": "a", "count": 1, "share": 0.5, "paid": true}', row("a", 1, 0.5, True)),
        (b' {"other": {"name": "b"}, "name": "\\u00e9\\n"} ', row("é\n")),
        (b'{\n  "name": "a",\n  "count": -7\n}', row("a", -7)),
        (b"{}", row()),
        (b'{"name": null, "count": null}', row()),
        # Of another type
        (b'{"name": 1.50, "count": 2}', row("1.50", 2)),
        (b'{"name": {"a": [1, "x", null]}}', row('{"a":[1,"x",null]}')),
        (b'{"name": true}', row("true")),
        (b'{"name": "a", "count": "1", "share": "x", "paid": 1}', row("a")),
        (b'{"name": "a", "count": 1.5, "share": 2}', row("a", None, 2.0)),
        (b'{"count": 9223372036854775807}', row(None, 2**63 - 1)),
        (b'{"name": "a", "count": 9223372036854775808}', row("a")),
        # No JSON object
        (None, None),
        (b"", None),
        (b" ", None),
        (b"null", None),
        (b"[]", None),
        (b'"text"', None),
        (b'{"name": "a"', None),
        (b'{"name": "a"} {}', None),
        (b"{'name': 'a'}", None),
        (b'{"name": "a\nb"}', None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
    ],
)
def test_value(value: bytes | None, expected: dict[str, object] | None) -> None:
    assert parse(value) == [expected]
    # Among values that Arrow parses.
    plain = b'{"name": "p"}'
    assert parse(*[plain] * 200, value, *[plain] * 100) == [
        *[row("p")] * 200,
        expected,
        *[row("p")] * 100,
    ]


@pytest.mark.parametrize(
    "values",
    [
        # Text that would be two rows, or none, if values were not kept apart.
        [b'{}}\n{"v":{}', b"", b'{"name": "a"}'],
        [b"{}{}", b" "],
        [b"{}\n{}", b"\n"],
        [b'{"x": [', b"]}"],
        [b'{"x": "', b'"}'],
        [b'{},"v":{"name":"x"}', b"{}"],
    ],
)
def test_values_are_not_mixed(values: list[bytes]) -> None:
    assert parse(*values) == [each for value in values for each in parse(value)]


def test_escapes_without_utf8_are_replaced() -> None:
    assert parse(b'{"name": "\\ud800"}') == [row("?")]


def test_random_values_are_those_of_the_python_parser() -> None:
    rng = random.Random(7)
    values = [_random_value(rng) for _value in range(3_000)]
    expected = []
    for value in values:
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        expected.append({"name": parsed.get("name")} if isinstance(parsed, dict) else None)
    assert parse(*values, fields="name STRING") == expected
    assert None in expected


def _random_value(rng: random.Random) -> bytes:
    text = json.dumps(
        {"name": "".join(rng.choices('ab"\\é\n{}', k=rng.randrange(8))), "n": [rng.random()]},
        ensure_ascii=rng.random() < 0.5,
        indent=rng.choice([None, 1]),
    ).encode()
    return text[: rng.randrange(len(text))] if rng.random() < 0.01 else text


def test_one_bad_value_does_not_make_the_others_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[bytes | None] = []
    parse_value = JsonFields._parse_value

    def note(fields: JsonFields, value: bytes | None) -> dict[str, object] | None:
        slow.append(value)
        return parse_value(fields, value)

    monkeypatch.setattr(json_fields.JsonFields, "_parse_value", note)
    parsed = parse(*[b"{}"] * 9_999, b"bad", *[b"{}"] * 10_000)
    assert [number for number, each in enumerate(parsed) if each is None] == [9_999]
    assert b"bad" in slow
    assert len(slow) <= SPARK_JSON_ROWS


def test_columns() -> None:
    assert column_options({}).names == RECORD_COLUMNS
    assert column_options({"includeHeaders": "true"}).names == (*RECORD_COLUMNS, "headers")
    with_json = column_options({"jsonfields": "a STRING, `b c` bigint"})
    assert with_json.names == (*RECORD_COLUMNS, "json")
    assert with_json.json_fields == (
        JsonField("a", JsonType.STRING),
        JsonField("b c", JsonType.BIGINT),
    )
    selected = column_options({"columns": "json, offset", "jsonFields": "a STRING"})
    assert selected.names == ("json", "offset")
