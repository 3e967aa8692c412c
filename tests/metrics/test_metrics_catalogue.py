"""Every measure has a unique name in Prometheus's conventions and its place in docs/METRICS.md."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from penstock.metrics import catalogue
from penstock.metrics.measure import Kind, Measure

DOCS = Path(__file__).parents[2] / "docs" / "METRICS.md"


def measures() -> list[Measure]:
    modules = [
        import_module(f"{catalogue.__name__}.{module.name}")
        for module in iter_modules(catalogue.__path__)
    ]
    return [
        value for module in modules for value in vars(module).values() if isinstance(value, Measure)
    ]


def test_names_are_unique_and_follow_the_conventions() -> None:
    names = [measure.name for measure in measures()]
    assert len(names) == len(set(names))
    for measure in measures():
        assert re.fullmatch(r"penstock_[a-z]+(_[a-z]+)*", measure.name)
        assert measure.name.endswith("_total") == (measure.kind is Kind.COUNTER)
        assert not re.search(r"_(ms|millis|kb|mb)(_|$)", measure.name)
        assert measure.text.endswith(".")


def test_the_help_names_kafkas_metric_or_says_that_there_is_none() -> None:
    for measure in measures():
        assert re.search(
            r" JMX: (kafka|java)\.[a-z.]+:type=[^ ]+$| Kafka has no such metric\.$", measure.help
        ), measure.help


def test_the_documentation_lists_every_measure_and_no_other() -> None:
    listed = re.findall(r"^\| `(penstock_\w+)`", DOCS.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(measure.name for measure in measures())
