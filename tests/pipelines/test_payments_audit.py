"""The audit: what is as it was sent passes, and whatever is not is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from pipelines.payments.audit import Found, audit, euros
from pipelines.payments.events import Payments, Scenario
from pipelines.payments.truth import Total, Truth, ledger


@pytest.fixture(scope="module")
def truth() -> Truth:
    truth = Truth()
    for arrival in Payments(Scenario(payments=3_000, customers=200, merchants=3)):
        truth.add(arrival)
    return truth


@pytest.fixture
def right(truth: Truth) -> Found:
    windows = list(truth.totals.items())
    places = [("payments", "0", str(number)) for number in range(truth.malformed)]
    return Found(
        truth.records,
        Counter(truth.ids),
        windows,
        windows,
        list(truth.fraud),
        places,
        ledger(truth.totals),
    )


def bad(truth: Truth, found: Found) -> dict[str, str]:
    return {line.name: line.text for line in audit(truth, found) if not line.right}


def test_what_was_sent_balances(truth: Truth, right: Found) -> None:
    lines = {line.name: line.text for line in audit(truth, right)}
    assert bad(truth, right) == {}
    assert lines["lost"] == lines["duplicates"] == "0"
    assert lines["balance"] == "0.00 EUR off what was sent"


def test_records_written_again_are_no_fault(truth: Truth, right: Found) -> None:
    again = replace(
        right, totals=right.totals * 2, alerts=right.alerts * 2, dead_letters=right.dead_letters * 2
    )
    assert bad(truth, again) == {}
    assert (
        f"{len(right.totals)} written again"
        in {line.name: line.text for line in audit(truth, again)}["totals"]
    )


def test_a_payment_that_was_counted_twice(truth: Truth, right: Found) -> None:
    (window, total), *rest = right.table
    more = [(window, total.plus(Total(payments=1, gross_cents=5))), *rest]
    found = replace(right, table=more, totals=more, ledger=ledger(dict(more)))
    assert bad(truth, found).keys() == {"duplicates", "totals", "ledger", "balance"}
    assert bad(truth, found)["balance"] == "0.05 EUR off what was sent"


def test_a_total_that_is_missing(truth: Truth, right: Found) -> None:
    (_window, total), *rest = right.table
    found = replace(right, table=rest, ledger=ledger(dict(rest)))
    assert bad(truth, found)["lost"] == str(total.events)


def test_a_total_that_is_there_twice(truth: Truth, right: Found) -> None:
    found = replace(right, table=[right.table[0], *right.table])
    assert bad(truth, found) == {"duplicates": str(right.table[0][1].events)}


def test_alerts_that_are_wrong_and_missing(truth: Truth, right: Found) -> None:
    found = replace(right, alerts=[*right.alerts[1:], ("e-0", "amount")])
    assert bad(truth, found) == {"alerts": f"{len(truth.fraud) - 1} right, 1 wrong, 1 missed"}


def test_records_that_the_topic_lost_or_has_twice(truth: Truth, right: Found) -> None:
    first, second, *_rest = truth.ids
    found = replace(right, ids=right.ids + Counter([first]) - Counter([second]))
    assert bad(truth, found) == {"in the topic": f"{truth.records:,}; 1 lost, 1 too many"}


def test_a_dead_letter_that_is_missing(truth: Truth, right: Found) -> None:
    assert bad(truth, replace(right, dead_letters=right.dead_letters[1:])).keys() == {"events out"}


@pytest.mark.parametrize(
    ("cents", "text"), [(0, "0.00"), (123_456_789, "1,234,567.89"), (-5, "-0.05")]
)
def test_euros(cents: int, text: str) -> None:
    assert euros(cents) == text
