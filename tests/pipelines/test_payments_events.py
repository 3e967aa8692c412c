"""The generator is deterministic, and its events have the documented properties."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pipelines.payments import generate, pipeline
from pipelines.payments.events import (
    CLOSING_AFTER_MS,
    COMPLETED,
    MAX_LATE_MS,
    Arrival,
    Payments,
    Scenario,
)
from pipelines.payments.truth import WINDOW_MS, Truth, ledger, sum_of

SCENARIO = Scenario(payments=20_000, customers=500)


@pytest.fixture(scope="module")
def arrivals() -> list[Arrival]:
    return list(Payments(SCENARIO))


def truth_of(arrivals: list[Arrival]) -> Truth:
    truth = Truth()
    for arrival in arrivals:
        truth.add(arrival)
    return truth


def test_equal_seeds_give_equal_events(arrivals: list[Arrival]) -> None:
    small = Scenario(payments=500, customers=50)
    assert list(Payments(small)) == list(Payments(small))
    assert list(Payments(small)) != list(Payments(Scenario(payments=500, customers=50, seed=2)))
    assert {arrival.kind for arrival in arrivals} == {"event", "duplicate", "malformed"}


def test_arrivals_are_ordered_and_delays_are_bounded(arrivals: list[Arrival]) -> None:
    assert [arrival.at_ms for arrival in arrivals] == sorted(arrival.at_ms for arrival in arrivals)
    late = [
        arrival.at_ms - arrival.event.time_ms for arrival in arrivals if arrival.event is not None
    ]
    assert min(late) == 0
    assert MAX_LATE_MS < max(late) < 2 * MAX_LATE_MS


def test_delays_are_below_the_watermark_of_the_pipeline() -> None:
    watermark_ms = pipeline.WATERMARK_MINUTES * 60_000
    assert watermark_ms > 2 * MAX_LATE_MS + generate.AHEAD_MS
    assert watermark_ms + WINDOW_MS < CLOSING_AFTER_MS
    assert f"{WINDOW_MS // 60_000} minutes" == pipeline.WINDOW


def test_only_fraudulent_payments_are_frequent(arrivals: list[Arrival]) -> None:
    fraud = truth_of(arrivals).fraud
    assert {rule for _payment, rule in fraud} == {"velocity", "amount"}
    times: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for event in (arrival.event for arrival in arrivals if arrival.event is not None):
        if event.type == COMPLETED:
            times[event.customer].add((event.time_ms, (event.event_id, "velocity") in fraud))
    for paid in map(sorted, times.values()):
        for (first_ms, _fast), (last_ms, fast) in zip(paid, paid[3:], strict=False):
            assert fast or last_ms - first_ms >= 60_000


def test_truth_counts_every_event_once(arrivals: list[Arrival], tmp_path: Path) -> None:
    truth = truth_of(arrivals)
    total = sum_of(truth.totals.values())
    assert truth.records == len(arrivals) == total.events + truth.malformed + truth.duplicates
    assert len(truth.ids) == total.events
    assert Counter(truth.ids.values())[2] == truth.duplicates
    assert list(ledger(truth.totals)) == ["2026-03-01", "2026-03-02"]
    assert sum_of(ledger(truth.totals).values()) == total
    truth.save(tmp_path / "truth.json")
    assert Truth.load(tmp_path / "truth.json") == truth


def test_events_are_json(arrivals: list[Arrival]) -> None:
    first = next(
        arrival
        for arrival in arrivals
        if arrival.event is not None and arrival.event.type == COMPLETED
    )
    assert first.event is not None
    assert json.loads(first.value or b"") == {
        "type": "PaymentCompleted",
        "event_id": first.event.event_id,
        "event_time": "2026-03-01T23:30:00.000Z",
        "customer": first.event.customer,
        "merchant": first.event.merchant,
        "amount_cents": first.event.amount_cents,
    }
    assert first.key == first.event.customer.encode()


def test_too_few_customers_are_refused() -> None:
    with pytest.raises(
        ValueError, match="10 customers make at most 900 payments in 60 minutes: raise the number"
    ):
        Scenario(payments=1_000, customers=10)
