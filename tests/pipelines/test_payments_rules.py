"""The fraud rules: which payments they detect, independent of batches and order."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.payments.events import COMPLETED, Payments, Scenario
from pipelines.payments.pipeline import FAST_MS, WATERMARK_MINUTES, Customer, Payment, detect_fraud
from pipelines.payments.truth import Truth

MINUTE_MS = 60_000


def pay(*times_ms: int, cents: int = 1_000) -> list[Payment]:
    return [Payment(time_ms, f"p-{time_ms}", cents) for time_ms in times_ms]


def times_and_rules(alerts: list[tuple[Payment, str]]) -> set[tuple[int, str]]:
    return {(payment.time_ms, rule) for payment, rule in alerts}


def test_five_payments_within_a_minute_are_alerts() -> None:
    _state, alerts = detect_fraud(
        Customer(), pay(0, 10_000, 20_000, 30_000, FAST_MS - 1, 10 * MINUTE_MS)
    )
    assert times_and_rules(alerts) == {
        (time_ms, "velocity") for time_ms in (0, 10_000, 20_000, 30_000, FAST_MS - 1)
    }
    _state, alerts = detect_fraud(Customer(), pay(0, 10_000, 20_000, 30_000, FAST_MS))
    assert alerts == []


def test_late_payment_turns_earlier_ones_into_alerts_once() -> None:
    state, alerts = detect_fraud(Customer(), pay(0, 1_000, 2_000, 4_000))
    assert alerts == []
    state, alerts = detect_fraud(state, pay(3_000))
    assert times_and_rules(alerts) == {
        (time_ms, "velocity") for time_ms in (0, 1_000, 2_000, 3_000, 4_000)
    }
    _state, alerts = detect_fraud(state, pay(5_000))
    assert times_and_rules(alerts) == {(5_000, "velocity")}


def test_large_payment_is_an_alert_and_does_not_change_the_average() -> None:
    state, alerts = detect_fraud(Customer(), pay(0, 2 * MINUTE_MS, 4 * MINUTE_MS))
    for time_ms in (6 * MINUTE_MS, 8 * MINUTE_MS):
        state, alerts = detect_fraud(state, pay(time_ms, cents=8_001))
        assert times_and_rules(alerts) == {(time_ms, "amount")}
    assert (state.ordinary, state.spent_cents) == (3, 3_000)
    _state, alerts = detect_fraud(state, pay(10 * MINUTE_MS, cents=8_000))
    assert alerts == []


def test_new_customer_has_no_amount_limit() -> None:
    assert (
        detect_fraud(
            Customer(), [*pay(0, MINUTE_MS, cents=1), *pay(2 * MINUTE_MS, cents=1_000_000)]
        )[1]
        == []
    )


def test_payments_older_than_the_watermark_are_dropped_from_the_state() -> None:
    state, _alerts = detect_fraud(Customer(), pay(0))
    state, _alerts = detect_fraud(state, pay(WATERMARK_MINUTES * MINUTE_MS + FAST_MS))
    assert len(state.recent) == 2
    state, _alerts = detect_fraud(state, pay(WATERMARK_MINUTES * MINUTE_MS + FAST_MS + 1))
    assert len(state.recent) == 2


@given(
    st.lists(st.integers(0, 10 * MINUTE_MS), min_size=1, max_size=30, unique=True),
    st.randoms(),
    st.integers(1, 6),
)
def test_velocity_does_not_depend_on_order_or_batches(
    times_ms: list[int], random: Random, size: int
) -> None:
    _state, in_one_batch = detect_fraud(Customer(), pay(*times_ms))
    shuffled = pay(*times_ms)
    random.shuffle(shuffled)
    state, alerts = Customer(), []
    for start in range(0, len(shuffled), size):
        state, more = detect_fraud(state, shuffled[start : start + size])
        alerts += more
    assert len(alerts) == len(set(alerts))
    assert times_and_rules(alerts) == times_and_rules(in_one_batch)


@pytest.mark.parametrize("batches", [1, 40])
def test_exactly_the_fraud_of_a_scenario_is_detected(batches: int) -> None:
    arrivals = list(Payments(Scenario(payments=20_000, customers=500, seed=5)))
    truth, customers, alerts = Truth(), defaultdict[str, Customer](Customer), []
    size = -(-len(arrivals) // batches)
    for start in range(0, len(arrivals), size):
        batch = defaultdict[str, list[Payment]](list)
        for arrival in arrivals[start : start + size]:
            truth.add(arrival)
            event = arrival.event
            if event is not None and arrival.kind == "event" and event.type == COMPLETED:
                batch[event.customer].append(
                    Payment(event.time_ms, event.event_id, event.amount_cents or 0)
                )
        for customer, payments in batch.items():
            customers[customer], more = detect_fraud(customers[customer], payments)
            alerts += [(payment.payment_id, rule) for payment, rule in more]
    assert len(alerts) == len(set(alerts))
    assert set(alerts) == truth.fraud
