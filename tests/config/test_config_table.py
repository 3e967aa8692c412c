"""Compares the table of settings with that of Kafka 4.3, if the facts are available next to the
clone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.config.setting import Dynamic, Setting
from penstock.config.settings import NODE_SETTINGS
from penstock.config.topic_settings import TOPIC_SETTINGS, TOPIC_SYNONYMS

FACTS = Path(__file__).parents[3] / "shared" / "protocol" / "configs.txt"
with_facts = pytest.mark.skipif(not FACTS.exists(), reason="Kafka's table is not beside this clone")

ROW = re.compile(r"(\S+)\s+([A-Z]+)\s+(.*?)\s+(high|medium|low)(?:\s+(internal))?(?:\s+(.*))?")


@dataclass(frozen=True)
class Fact:
    type: str
    default: str
    importance: str
    internal: bool
    valid: str


def facts(title: str) -> dict[str, Fact]:
    section = FACTS.read_text().split(f"# {title}")[1].split("\n# ")[0]
    found = {}
    for line in section.splitlines()[1:]:
        if match := ROW.fullmatch(line.strip()):
            name, type_, default, importance, internal, valid = match.groups()
            found[name] = Fact(type_, default, importance, internal is not None, valid or "")
    assert len(found) > 30
    return found


def fact_of(setting: Setting[Any]) -> Fact:
    valid = setting.valid.text if setting.valid else ""
    return Fact(
        setting.type.name, shown_default(setting), setting.importance.value, setting.internal, valid
    )


def shown_default(setting: Setting[Any]) -> str:
    if setting.required:
        return "(required)"
    if setting.name == "log.dir":
        return "(temporary directory)/kafka-logs]"
    value = setting.default_value()
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    shown = setting.format(value)
    return "null" if shown is None else shown or '""'


# Kafka has these only as dynamic settings, which are not in its table.
ONLY_DYNAMIC = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
# These are settings of Kafka's authorizer, which are not in its table.
ONLY_OF_AUTHORIZER = ("allow.everyone.if.no.acl.found", "super.users")


@with_facts
@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in NODE_SETTINGS
        if not name.startswith("penstock.") and name not in ONLY_DYNAMIC + ONLY_OF_AUTHORIZER
    ),
)
def test_node_setting_equals_kafkas(name: str) -> None:
    assert fact_of(NODE_SETTINGS[name]) == facts("Broker and controller settings")[name]


@with_facts
@pytest.mark.parametrize("name", sorted(TOPIC_SETTINGS))
def test_topic_setting_equals_kafkas(name: str) -> None:
    assert fact_of(TOPIC_SETTINGS[name]) == facts("Topic settings")[name]


@with_facts
def test_dynamic_settings_equal_kafkas() -> None:
    section = FACTS.read_text().split("# Broker settings that can be changed while it runs\n")[1]
    dynamic = {
        name for name, setting in NODE_SETTINGS.items() if setting.dynamic is not Dynamic.READ_ONLY
    }
    assert dynamic == NODE_SETTINGS.keys() & set(section.split())


def test_every_setting_has_documentation_and_a_valid_default() -> None:
    for setting in (*NODE_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert setting.doc.endswith("."), setting.name
        if not setting.required and (shown := setting.format(setting.default_value())) is not None:
            assert setting.parse(shown) == setting.default_value(), setting.name


def test_default_of_a_topic_setting_is_that_of_its_last_synonym() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        if synonyms:
            last = synonyms[-1]
            value = last.setting.default_value()
            assert TOPIC_SETTINGS[name].default_value() == (
                value * last.factor if last.factor != 1 else value
            ), name
            assert last.setting.name in NODE_SETTINGS
