"""The rules for fraud: what they find, and that it does not depend on how a stream is cut and
mixed."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.payments.events import COMPLETED, Payments, Scenario
from pipelines.payments.pipeline import FAST_MS, WATERMARK_MINUTES, Customer, Payment, judge
from pipelines.payments.truth import Truth

MINUTE_MS = 60_000


def pay(*times_ms: int, cents: int = 1_000) -> list[Payment]:
    return [Payment(time_ms, f"p-{time_ms}", cents) for time_ms in times_ms]


def found(alerts: list[tuple[Payment, str]]) -> set[tuple[int, str]]:
    return {(payment.time_ms, rule) for payment, rule in alerts}


def test_five_within_a_minute_are_too_fast() -> None:
    _known, alerts = judge(Customer(), pay(0, 10_000, 20_000, 30_000, FAST_MS - 1, 10 * MINUTE_MS))
    assert found(alerts) == {
        (time_ms, "velocity") for time_ms in (0, 10_000, 20_000, 30_000, FAST_MS - 1)
    }
    _known, alerts = judge(Customer(), pay(0, 10_000, 20_000, 30_000, FAST_MS))
    assert alerts == []


def test_a_late_payment_makes_others_too_fast_once() -> None:
    known, alerts = judge(Customer(), pay(0, 1_000, 2_000, 4_000))
    assert alerts == []
    known, alerts = judge(known, pay(3_000))
    assert found(alerts) == {(time_ms, "velocity") for time_ms in (0, 1_000, 2_000, 3_000, 4_000)}
    _known, alerts = judge(known, pay(5_000))
    assert found(alerts) == {(5_000, "velocity")}


def test_a_payment_far_above_the_usual_is_too_large_and_does_not_become_usual() -> None:
    known, alerts = judge(Customer(), pay(0, 2 * MINUTE_MS, 4 * MINUTE_MS))
    for time_ms in (6 * MINUTE_MS, 8 * MINUTE_MS):
        known, alerts = judge(known, pay(time_ms, cents=8_001))
        assert found(alerts) == {(time_ms, "amount")}
    assert (known.ordinary, known.spent_cents) == (3, 3_000)
    _known, alerts = judge(known, pay(10 * MINUTE_MS, cents=8_000))
    assert alerts == []


def test_a_new_customer_may_pay_anything() -> None:
    assert (
        judge(Customer(), [*pay(0, MINUTE_MS, cents=1), *pay(2 * MINUTE_MS, cents=1_000_000)])[1]
        == []
    )


def test_what_no_late_payment_can_reach_is_forgotten() -> None:
    known, _alerts = judge(Customer(), pay(0))
    known, _alerts = judge(known, pay(WATERMARK_MINUTES * MINUTE_MS + FAST_MS))
    assert len(known.recent) == 2
    known, _alerts = judge(known, pay(WATERMARK_MINUTES * MINUTE_MS + FAST_MS + 1))
    assert len(known.recent) == 2


@given(
    st.lists(st.integers(0, 10 * MINUTE_MS), min_size=1, max_size=30, unique=True),
    st.randoms(),
    st.integers(1, 6),
)
def test_speed_does_not_depend_on_order_or_batches(
    times_ms: list[int], random: Random, size: int
) -> None:
    _known, at_once = judge(Customer(), pay(*times_ms))
    mixed = pay(*times_ms)
    random.shuffle(mixed)
    known, alerts = Customer(), []
    for start in range(0, len(mixed), size):
        known, more = judge(known, mixed[start : start + size])
        alerts += more
    assert len(alerts) == len(set(alerts))
    assert found(alerts) == found(at_once)


@pytest.mark.parametrize("batches", [1, 40])
def test_all_the_fraud_of_a_scenario_is_found_and_nothing_else(batches: int) -> None:
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
            customers[customer], more = judge(customers[customer], payments)
            alerts += [(payment.payment_id, rule) for payment, rule in more]
    assert len(alerts) == len(set(alerts))
    assert set(alerts) == truth.fraud
