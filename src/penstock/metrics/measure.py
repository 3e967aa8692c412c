"""A measure: its name, kind, labels and documentation.

Names follow Prometheus's conventions: base units (seconds, bytes), `_total` for counters. The help
text ends with the JMX name of the Kafka metric that the measure stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """`jmx` is the name of Kafka's metric; empty if Kafka has none."""

    name: str
    kind: Kind
    text: str
    jmx: str = ""
    labels: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        if not self.jmx:
            return f"{self.text} Kafka has no such metric."
        return f"{self.text} JMX: {self.jmx}"


def gauge(name: str, text: str, jmx: str = "", labels: tuple[str, ...] = ()) -> Measure:
    return Measure(f"penstock_{name}", Kind.GAUGE, text, jmx, labels)


def counter(name: str, text: str, jmx: str = "", labels: tuple[str, ...] = ()) -> Measure:
    return Measure(f"penstock_{name}_total", Kind.COUNTER, text, jmx, labels)


def histogram(name: str, text: str, jmx: str = "", labels: tuple[str, ...] = ()) -> Measure:
    return Measure(f"penstock_{name}", Kind.HISTOGRAM, text, jmx, labels)
