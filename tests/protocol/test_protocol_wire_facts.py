"""Compares the declarations with a text description of Kafka's messages, field by field.

The description is stored beside a clone of the repository, not in it. Without it, Kafka's bytes
(test_java_bytes) and kio (test_protocol_oracle) check the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.ids import NO_UUID
from penstock.protocol.apis import APIS, request_class, response_class
from penstock.protocol.schema import Field, fields_of, schema_of
from tests.protocol.schema_strategies import internal_messages

FACTS = Path(__file__).resolve().parents[2].parent / "shared" / "protocol"
needs_facts = pytest.mark.skipif(
    not FACTS.is_dir(), reason="the description of Kafka's messages is not beside this clone"
)

# Kafka's definitions say null without quotes here, which its generator ignores. test_java_bytes
# proves it.
UNQUOTED_NULL = {"assignment_epochs", "last_assignment_configs", "classic_member_metadata"}

_FIELD = re.compile(
    r"^(?P<indent> +)(?P<name>\w+) +(?P<kind>\w+)(?P<array>\[\])?"
    r"(?: +(?P<versions>\d+(?:\+|-\d+)?)(?= |$))?"
    r"(?: +nullable (?P<nullable>\S+))?(?: +tag (?P<tag>\d+) in (?P<tagged>\S+))?(?: +key)?"
    r"(?: +=(?: (?P<default>(?!ignorable)\S+)| ?)?)?(?P<ignorable> +ignorable)?(?P<stiff> "
    r"+flexible none)?$"
)
_API = re.compile(r"^## (\w+) \(api key (\d+); listeners (.*)\)$")
_SIDE = re.compile(
    r"^(request|response): versions (\S+), flexible (\S+?)(, newest version unstable.*)?$"
)
_RECORD = re.compile(r"^## (\w+)(?: \(api key (\d+)\))?, [\w-]+: versions (\S+), flexible (\S+)$")


@dataclass
class Stated:
    """A message of the description."""

    name: str
    key: int | None
    versions: str
    flexible: str
    listeners: frozenset[str] = frozenset()
    unstable: bool = False
    lines: list[str] = field(default_factory=list)


def _stated_apis() -> Iterator[Stated]:
    api: re.Match[str] | None = None
    current: Stated | None = None
    for line in (FACTS / "wire.txt").read_text().splitlines():
        if match := _API.match(line):
            api = match
        elif match := _SIDE.match(line):
            assert api is not None
            if current is not None:
                yield current
            name, listeners = api[1] + match[1].capitalize(), frozenset(api[3].split(", "))
            current = Stated(name, int(api[2]), match[2], match[3], listeners, bool(match[4]))
        elif line.startswith("  ") and current is not None:
            current.lines.append(line)
    assert current is not None
    yield current


def _stated_records() -> Iterator[Stated]:
    current: Stated | None = None
    for line in (FACTS / "records.txt").read_text().splitlines():
        if match := _RECORD.match(line):
            if current is not None:
                yield current
            current = Stated(match[1], int(match[2]) if match[2] else None, match[3], match[4])
        elif line.startswith("  ") and current is not None:
            current.lines.append(line)
    assert current is not None
    yield current


def _declared_lines(cls: type, depth: int = 1) -> Iterator[str]:
    """Yield a declaration in the canonical form of `_stated_line`."""
    for declared in fields_of(cls):
        yield (
            f"{'  ' * depth}{declared.name} {declared.kind}{'[]' if declared.is_array else ''} "
            f"{_facts_of(declared)}"
        )
        if declared.struct is not None:
            yield from _declared_lines(declared.struct, depth + 1)


def _facts_of(declared: Field) -> str:
    default = declared.default
    if declared.struct is not None and not declared.is_array and default is not None:
        default = ""
    default = "" if default in (0, False, "", b"", (), NO_UUID) else default
    facts = [
        str(declared.versions),
        f"nullable {declared.nullable}",
        f"tag {declared.tag}",
        f"= {default}",
    ]
    return " ".join([*facts, f"ignorable {declared.ignorable}", f"stiff {declared.never_compact}"])


def _stated_line(line: str) -> str:
    match = _FIELD.match(line)
    assert match is not None, line
    name, kind = match["name"], match["kind"]
    default = _stated_default(
        name, kind, match["default"] or "", nullable=match["nullable"] is not None
    )
    facts = [
        match["tagged"] or match["versions"],
        f"nullable {match['nullable'] or 'none'}",
        f"tag {match['tag']}",
        f"= {default}",
    ]
    ending = [f"ignorable {bool(match['ignorable'])}", f"stiff {bool(match['stiff'])}"]
    return f"{match['indent']}{name} {kind}{match['array'] or ''} {' '.join([*facts, *ending])}"


def _stated_default(name: str, kind: str, text: str, *, nullable: bool) -> object:
    # In Kafka, nullable record batches are null by default, without a default in the definition.
    if (text == "null" and name not in UNQUOTED_NULL) or (kind == "records" and nullable):
        return None
    if text.lower() in ("", "0", "false", "null"):
        return ""
    return True if text == "true" else int(text, 0)


def _assert_same(stated: Stated, cls: type) -> None:
    schema = schema_of(cls)
    assert (str(schema.versions), str(schema.flexible), schema.api_key) == (
        stated.versions,
        stated.flexible,
        stated.key,
    )
    assert list(_declared_lines(cls)) == [_stated_line(line) for line in stated.lines]


@needs_facts
def test_messages_equal_the_description() -> None:
    stated = {message.name: message for message in _stated_apis()}
    declared = {
        cls.__name__: cls
        for api in APIS
        for cls in (request_class(api.key), response_class(api.key))
    }
    assert stated.keys() == declared.keys()
    for name, cls in declared.items():
        _assert_same(stated[name], cls)


@needs_facts
def test_the_table_of_apis_equals_the_description() -> None:
    requests = [message for message in _stated_apis() if message.name.endswith("Request")]
    assert [
        (f"{api.name}Request", api.key, str(api.versions), api.listeners, api.newest_unstable)
        for api in APIS
    ] == [
        (message.name, message.key, message.versions, message.listeners, message.unstable)
        for message in requests
    ]


@needs_facts
def test_internal_records_equal_the_description() -> None:
    stated = {record.name: record for record in _stated_records()}
    declared = {cls.__name__: cls for cls in internal_messages()}
    assert stated.keys() == declared.keys()
    for name, cls in declared.items():
        _assert_same(stated[name], cls)


def test_the_table_of_apis_agrees_with_the_messages() -> None:
    for api in APIS:
        for cls in (request_class(api.key), response_class(api.key)):
            schema = schema_of(cls)
            first_flexible = None if str(schema.flexible) == "none" else schema.flexible.first
            assert (schema.api_key, schema.versions, first_flexible) == (
                api.key,
                api.versions,
                api.flexible_from,
            )
