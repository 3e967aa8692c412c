"""The page is Prometheus's text format, as prometheus-client writes and reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from penstock.limits import SCRAPED_SAMPLES_PER_STEP
from penstock.metrics.histogram import Histogram
from penstock.metrics.measure import counter, gauge, histogram
from penstock.metrics.samples import Samples, Series, page
from penstock.metrics.turn import Turn
from tests.metrics.scrape import parsed

LAG = gauge("lag", "Lag \\ of\na group.", "kafka:type=Lag", ("group", "topic"))
REQUESTS = counter("requests", "Requests.", "kafka:type=Requests", ("api",))
SIZE = gauge("size", "Size.")
TIMES = histogram("times_seconds", "Times.", "kafka:type=Times", ("api",))


class Clock:
    """Each look at the clock takes a step."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now = 0.0
        self.step_s = step_s

    def monotonic(self) -> float:
        self.now += self.step_s
        return self.now

    def now_ms(self) -> int:
        return 0


class Registry:
    """The families of prometheus-client with the same samples."""

    def __init__(self, lags: Mapping[tuple[str, str], float], times: Histogram) -> None:
        self._lags = lags
        self._times = times

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(LAG.name, LAG.help, labels=LAG.labels)
        for labels, number in self._lags.items():
            lag.add_metric(labels, number)
        requests = CounterMetricFamily(REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
        requests.add_metric(("Produce",), 7)
        size = GaugeMetricFamily(SIZE.name, SIZE.help, value=2.5)
        times = HistogramMetricFamily(TIMES.name, TIMES.help, labels=TIMES.labels)
        bounds = [*map(floatToGoString, (*self._times.bounds, inf))]
        counts = [sum(self._times.counts[: number + 1]) for number in range(len(bounds))]
        times.add_metric(("Fetch",), [*zip(bounds, counts, strict=True)], self._times.sum)
        yield from (lag, requests, size, times)


def written(samples: Samples) -> str:
    return asyncio.run(page(samples, Turn(Clock()))).decode()


names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r"), max_size=8)


@given(
    st.dictionaries(st.tuples(names, names), st.floats() | st.integers(0, 2**63), max_size=5),
    st.lists(st.floats(0, 100), max_size=20),
)
def test_prometheus_client_reads_the_page_as_it_reads_its_own(
    lags: dict[tuple[str, str], float], times: list[float]
) -> None:
    samples = Samples()
    for labels, lag in lags.items():
        samples.add(LAG, lag, *labels)
    samples.add(REQUESTS, 7, "Produce")
    samples.add(SIZE, 2.5)
    measured = Histogram()
    for time in times:
        measured.observe(time)
    samples.add_histogram(TIMES, measured, "Fetch")
    text = written(samples)
    oracle = generate_latest(Registry(lags, measured)).decode()
    assert repr(parsed(text)) == repr(parsed(oracle))
    if lags:
        assert [line for line in text.splitlines() if line.startswith("#")] == [
            line for line in oracle.splitlines() if line.startswith("#")
        ]


@pytest.mark.parametrize(
    ("number", "text"), [(inf, "+Inf"), (-inf, "-Inf"), (nan, "NaN"), (3, "3"), (0.5, "0.5")]
)
def test_numbers(number: float, text: str) -> None:
    samples = Samples()
    samples.add(SIZE, number)
    assert written(samples).endswith(f"penstock_size {text}\n")


def test_a_histogram_counts_the_values_up_to_each_bound() -> None:
    measured = Histogram((0.1, 1.0))
    for time in (0.05, 0.1, 0.5, 3.0):
        measured.observe(time)
    samples = Samples()
    samples.add_histogram(TIMES, measured, "Fetch")
    assert written(samples).splitlines()[2:] == [
        'penstock_times_seconds_bucket{api="Fetch",le="0.1"} 2',
        'penstock_times_seconds_bucket{api="Fetch",le="1.0"} 3',
        'penstock_times_seconds_bucket{api="Fetch",le="+Inf"} 4',
        'penstock_times_seconds_count{api="Fetch"} 4',
        'penstock_times_seconds_sum{api="Fetch"} 3.65',
    ]


def test_a_page_of_many_samples_is_written_in_several_turns() -> None:
    samples = Samples()
    for number in range(10_000):
        samples.add(LAG, number, "group", str(number))
    turn = Turn(Clock(step_s=0.002))
    text = asyncio.run(page(samples, turn))
    assert turn.count > 2
    assert len(parsed(text.decode())) == 10_000


def bounded(
    samples: Samples,
    names: list[str],
    turn: Turn | None = None,
    series: Series | None = None,
) -> list[str]:
    async def collect() -> list[str]:
        chosen = samples.bounded(dict.fromkeys(names), series or Series(), turn or Turn(Clock()))
        return [name async for name in chosen]

    return asyncio.run(collect())


def test_names_beyond_the_limit_have_no_series_and_are_counted() -> None:
    samples = Samples(max_series=2)
    assert bounded(samples, ["c", "a"]) == ["c", "a"]
    assert samples.dropped == 0
    assert bounded(samples, ["c", "a", "b"]) == ["a", "b"]
    assert samples.dropped == 1


def test_names_keep_their_series_when_others_come() -> None:
    """A client that makes groups with names such as !0000 cannot take the series of others."""
    series = Series()
    real = [f"group-{number}" for number in range(5)]
    hostile = [f"!{number:04}" for number in range(1_000)]
    assert bounded(Samples(max_series=10), real, series=series) == real
    chosen = bounded(Samples(max_series=10), hostile + real, series=series)
    assert chosen == real + hostile[:5]
    # A name that is gone leaves its place.
    assert bounded(Samples(max_series=10), hostile + real[1:], series=series) == [
        *real[1:],
        *hostile[:6],
    ]
    assert len(series.names) == 10


def test_the_names_of_100_000_groups_are_chosen_in_several_turns() -> None:
    names = [str(number * 7919 % 100_000) for number in range(100_000)]
    samples, turn = Samples(max_series=1_000), Turn(Clock(step_s=0.002))
    assert bounded(samples, names, turn) == sorted(names)[:1_000]
    assert samples.dropped == 99_000
    assert turn.count > 100_000 / SCRAPED_SAMPLES_PER_STEP
