"""Generates payment events in the order of their arrival. Pure: a scenario always gives the same
bytes.

Includes late, duplicate and malformed events, and fraud. Fraud differs from ordinary payments by
construction, so that every alert is either right or wrong: ordinary customers pay at most three
times per minute and amounts close to their usual ones. Knows neither how events are sent nor the
rules that detect fraud.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Literal, NamedTuple

COMPLETED = "PaymentCompleted"
REFUNDED = "PaymentRefunded"
FRAUD = "FraudDetected"
CLOSING = "Closing"

# The maximum delay of an event; a duplicate is delayed once more. Twice this is well below the
# pipeline's watermark.
MAX_LATE_MS = 3 * 60_000
# Closing events are this much later, so that the watermark passes the last window.
CLOSING_AFTER_MS = 60 * 60_000
_ORDINARY_GAP_MS = 20_000
_QUIET_MS = 60_000
_START = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)

_LATE, _DUPLICATE, _MALFORMED, _REFUND, _BURST, _LARGE = 0.03, 0.01, 0.005, 0.03, 0.0008, 0.002

Kind = Literal["event", "duplicate", "malformed"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`payments` ordinary payments over `minutes` of event time. Event time starts half an hour
    before midnight, so that the ledger has two days."""

    payments: int = 80_000
    seed: int = 1
    customers: int = 2_000
    merchants: int = 40
    minutes: int = 60

    def __post_init__(self) -> None:
        if min(self.payments, self.customers, self.merchants, self.minutes) < 1:
            raise ValueError("payments, customers, merchants and minutes must be at least 1")
        maximum = self.minutes * 60_000 * self.customers // (2 * _ORDINARY_GAP_MS)
        if self.payments > maximum:
            raise ValueError(
                f"{self.customers} customers make at most {maximum} payments in {self.minutes} "
                "minutes: raise the number of customers"
            )

    @property
    def start_ms(self) -> int:
        return int(_START.timestamp() * 1000)

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.minutes * 60_000


class Event(NamedTuple):
    """Refunds and fraud reports have the id of the payment; `rule` is the rule that detects the
    fraud."""

    type: str
    event_id: str
    time_ms: int
    customer: str
    merchant: str
    amount_cents: int | None = None
    payment_id: str | None = None
    rule: str | None = None

    def encoded(self) -> bytes:
        fields = {
            "type": self.type,
            "event_id": self.event_id,
            "event_time": iso(self.time_ms),
            **self._asdict(),
        }
        return json.dumps(
            {
                name: value
                for name, value in fields.items()
                if name != "time_ms" and value is not None
            }
        ).encode()


class Arrival(NamedTuple):
    """One record of the topic. A malformed record has no event."""

    at_ms: int
    kind: Kind
    key: bytes | None
    value: bytes | None
    event: Event | None


@dataclass(slots=True)
class _Customer:
    name: str
    usual_cents: int
    first_ms: list[int]
    free_ms: int = 0
    last_ms: int = -_QUIET_MS


class Payments:
    """Iterates over all records in order of arrival; can be iterated once."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._random = random = Random(scenario.seed)
        self._customers = [
            _Customer(f"c-{number:05}", random.randrange(500, 6000), [])
            for number in range(scenario.customers)
        ]
        self._merchants = [f"m-{number:03}" for number in range(scenario.merchants)]
        self._pending: list[tuple[int, int, Arrival]] = []
        self._pushed = 0
        self._ids = 0

    def __iter__(self) -> Iterator[Arrival]:
        scenario = self._scenario
        for number in range(scenario.payments):
            now_ms = (
                scenario.start_ms
                + number * (scenario.end_ms - scenario.start_ms) // scenario.payments
            )
            yield from self._arrived(now_ms)
            self._happen(now_ms)
        yield from self._arrived(scenario.end_ms * 2)

    def _arrived(self, now_ms: int) -> Iterator[Arrival]:
        while self._pending and self._pending[0][0] <= now_ms:
            yield heapq.heappop(self._pending)[2]

    def _happen(self, now_ms: int) -> None:
        draw = self._random.random()
        customer = self._free_customer(now_ms)
        if (
            draw < _BURST
            and customer.last_ms <= now_ms - _QUIET_MS
            and now_ms + _QUIET_MS < self._scenario.end_ms
        ):
            self._burst(customer, now_ms)
        elif (
            draw < _BURST + _LARGE
            and len(customer.first_ms) == 4
            and customer.first_ms[-1] <= now_ms - MAX_LATE_MS
        ):
            self._fraud(self._pay(customer, now_ms, customer.usual_cents * 20), "amount")
        else:
            self._pay(customer, now_ms, self._ordinary(customer))
        if self._random.random() < _MALFORMED:
            self._send_malformed(now_ms, customer)

    def _free_customer(self, now_ms: int) -> _Customer:
        """At most half of the customers are busy at any time."""
        while (customer := self._random.choice(self._customers)).free_ms > now_ms:
            pass
        return customer

    def _ordinary(self, customer: _Customer) -> int:
        return self._random.randrange(customer.usual_cents // 2, customer.usual_cents * 3 // 2)

    def _burst(self, customer: _Customer, now_ms: int) -> None:
        """Send six to ten payments within less than a minute, and no others near them."""
        time_ms = now_ms
        for _ in range(self._random.randrange(6, 11)):
            self._fraud(self._pay(customer, time_ms, self._ordinary(customer)), "velocity")
            time_ms += self._random.randrange(1_000, 6_000)
        customer.free_ms = time_ms + _QUIET_MS

    def _pay(self, customer: _Customer, time_ms: int, amount_cents: int) -> Event:
        payment = Event(
            COMPLETED,
            self._new_id(),
            time_ms,
            customer.name,
            self._random.choice(self._merchants),
            amount_cents,
        )
        customer.free_ms, customer.last_ms = time_ms + _ORDINARY_GAP_MS, time_ms
        if len(customer.first_ms) < 4:
            customer.first_ms.append(time_ms)
        self._send(payment)
        if self._random.random() < _REFUND:
            self._refund(payment)
        return payment

    def _refund(self, payment: Event) -> None:
        assert payment.amount_cents is not None
        time_ms = payment.time_ms + self._random.randrange(60_000, 15 * 60_000)
        amount_cents = (
            payment.amount_cents if self._random.random() < 0.5 else -(-payment.amount_cents // 3)
        )
        if time_ms < self._scenario.end_ms:
            self._send(
                Event(
                    REFUNDED,
                    self._new_id(),
                    time_ms,
                    payment.customer,
                    payment.merchant,
                    amount_cents,
                    payment.event_id,
                )
            )

    def _fraud(self, payment: Event, rule: str) -> None:
        """Send the customer's report of the fraud."""
        time_ms = min(
            payment.time_ms + self._random.randrange(30_000, 120_000), self._scenario.end_ms - 1
        )
        customer, merchant = payment.customer, payment.merchant
        self._send(
            Event(
                FRAUD,
                self._new_id(),
                time_ms,
                customer,
                merchant,
                payment_id=payment.event_id,
                rule=rule,
            )
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"e-{self._scenario.seed}-{self._ids:07}"

    def _send(self, event: Event) -> None:
        at_ms = event.time_ms + (self._delay() if self._random.random() < _LATE else 0)
        key, value = event.customer.encode(), event.encoded()
        self._push(Arrival(at_ms, "event", key, value, event))
        if self._random.random() < _DUPLICATE:
            self._push(Arrival(at_ms + self._delay(), "duplicate", key, value, event))

    def _send_malformed(self, now_ms: int, customer: _Customer) -> None:
        whole = Event(COMPLETED, self._new_id(), now_ms, customer.name, self._merchants[0], 100)
        value = self._random.choice(malformed(whole))
        self._push(Arrival(now_ms, "malformed", customer.name.encode(), value, None))

    def _delay(self) -> int:
        return self._random.randrange(1, MAX_LATE_MS)

    def _push(self, arrival: Arrival) -> None:
        self._pushed += 1
        heapq.heappush(self._pending, (arrival.at_ms, self._pushed, arrival))


def malformed(whole: Event) -> list[bytes | None]:
    """Return malformed variants of an event, one per kind of error."""
    fields = json.loads(whole.encoded())

    def changed(**changes: object) -> bytes:
        return json.dumps(
            {name: value for name, value in {**fields, **changes}.items() if value is not None}
        ).encode()

    return [
        None,
        b"",
        b"\xff\xfe\x00 not text",
        whole.encoded()[:40],
        b"[1, 2]",
        changed(type="PaymentImagined"),
        changed(event_id=None),
        changed(event_time="yesterday"),
        changed(merchant=None),
        changed(amount_cents="12,50"),
        changed(amount_cents=-100),
    ]


def closing(scenario: Scenario, partition: int) -> Arrival:
    """Return the closing event of a partition. It is sent after all other events."""
    time_ms = scenario.end_ms + CLOSING_AFTER_MS
    event = Event(CLOSING, f"closing-{scenario.seed}-{partition}", time_ms, "", "")
    return Arrival(time_ms, "event", None, event.encoded(), event)


def iso(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
