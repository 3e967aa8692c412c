"""The samples of one scrape, and their page in Prometheus's text format.

A source adds the samples of what it measures. Each becomes a line at once: the garbage collector
does not look at strings, while it would walk over tens of thousands of tuples. prometheus-client's
`generate_latest` writes the page of a registry in one run, and takes several times as long; tests
compare both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from itertools import accumulate
from math import inf, isinf, isnan

from penstock.limits import SCRAPED_PARTITIONS_PER_STEP, SCRAPED_SAMPLES_PER_STEP
from penstock.metrics.histogram import Histogram
from penstock.metrics.measure import Measure
from penstock.metrics.turn import Turn

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Series:
    """The names that have series of their own. A name keeps its series while it exists, so that a
    client that creates many topics or groups does not displace others. Free places go to the first
    names in alphabetical order, so that each scrape has the same names."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    async def choose(
        self, names: Mapping[str, object], listed: list[str], count: int, turn: Turn
    ) -> list[str]:
        """Return some of the names. `listed` has them all in a list."""
        kept = [name for name in self.names if name in names][:count]
        free, first = count - len(kept), list[str]()
        for start in range(0, len(listed) if free else 0, SCRAPED_SAMPLES_PER_STEP):
            some = listed[start : start + SCRAPED_SAMPLES_PER_STEP]
            first = sorted([*first, *(name for name in some if name not in self.names)])[:free]
            await turn.pause()
        return kept + first


class Samples:
    """`per_partition` tells sources to add the series of single partitions. `max_series` bounds the
    topics and groups that have series of their own in a scrape; `dropped` counts the others."""

    def __init__(self, *, per_partition: bool = False, max_series: int = 1_000) -> None:
        self.per_partition = per_partition
        self.max_series = max_series
        self.dropped = 0
        self.lines: dict[Measure, list[str]] = {}
        self.texts: list[bytes] = []

    def add(self, measure: Measure, value: float, *labels: str) -> None:
        if labels:
            self.add_labelled(measure, value, label_text(measure.labels, labels))
        else:
            self._lines_of(measure).append(f"{measure.name} {_number(value)}\n")

    def add_labelled(self, measure: Measure, value: float, labels: str) -> None:
        """Add a sample with the text of its labels, which several measures may share."""
        lines = self.lines.get(measure)
        if lines is None:
            lines = self.lines[measure] = []
        lines.append(f"{measure.name}{{{labels}}} {_number(value)}\n")

    def add_histogram(self, measure: Measure, histogram: Histogram, *labels: str) -> None:
        name, text = measure.name, label_text(measure.labels, labels)
        before, braces = (f"{text},", f"{{{text}}}") if text else ("", "")
        head, count = f'{name}_bucket{{{before}le="', 0
        lines = []
        bounds = _bound_texts(tuple(histogram.bounds))
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
            lines.append(f'{head}{bound}"}} {count}\n')
        lines.append(f"{name}_count{braces} {count}\n")
        lines.append(f"{name}_sum{braces} {_number(histogram.sum)}\n")
        self._lines_of(measure).append("".join(lines))

    def add_text(self, text: bytes) -> None:
        """Add families that are in the text format already."""
        self.texts.append(text)

    async def bounded(
        self, names: Mapping[str, object], series: Series, turn: Turn
    ) -> AsyncIterator[str]:
        """Yield the names that get series of their own, with pauses: all, or some. `series` is that
        of the last scrape, and becomes that of this one."""
        chosen = list(names)
        if len(chosen) > self.max_series:
            self.dropped += len(chosen) - self.max_series
            chosen = await series.choose(names, chosen, self.max_series, turn)
        series.names = dict.fromkeys(chosen)
        for start in range(0, len(chosen), SCRAPED_PARTITIONS_PER_STEP):
            for name in chosen[start : start + SCRAPED_PARTITIONS_PER_STEP]:
                yield name
            await turn.pause()

    def _lines_of(self, measure: Measure) -> list[str]:
        return self.lines.setdefault(measure, [])


# Adds the samples of one subject; pauses between pieces of work.
Source = Callable[[Samples, Turn], Awaitable[None]]


async def page(samples: Samples, turn: Turn) -> bytes:
    """Return the text of all samples, and take them away: to free the lines of a large page at once
    would hold the event loop for milliseconds."""
    texts: list[bytes] = []
    for measure, lines in samples.lines.items():
        texts.append(_head(measure).encode())
        while lines:
            some = "".join(lines[:SCRAPED_SAMPLES_PER_STEP])
            texts.append(some.encode(errors="replace"))
            del lines[:SCRAPED_SAMPLES_PER_STEP]
            await turn.pause()
    return b"".join((*texts, *samples.texts))


def label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return the labels of a sample as the text format has them."""
    # Without a loop for most samples: a page may have thousands, of topics and of groups.
    if len(names) == 1:
        (value,) = values
        return f'{names[0]}="{_escape(value)}"'
    if len(names) == 2:
        value, other = values
        return f'{names[0]}="{_escape(value)}",{names[1]}="{_escape(other)}"'
    return ",".join(
        [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    )


def _head(measure: Measure) -> str:
    text = measure.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {measure.name} {text}\n# TYPE {measure.name} {measure.kind}\n"


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _number(value: float) -> str:
    if value.__class__ is not int:
        if isnan(value):
            return "NaN"
        if isinf(value):
            return "+Inf" if value > 0 else "-Inf"
    return repr(value)


@cache
def _bound_texts(bounds: tuple[float, ...]) -> list[str]:
    """Return the texts of a histogram's bounds. The code has few different ones."""
    return [_number(bound) for bound in (*bounds, inf)]
