"""The expected results of the pipeline, computed from the generated events in plain Python without
Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pipelines.payments.events import CLOSING, COMPLETED, FRAUD, REFUNDED, Arrival, Event, iso

WINDOW_MS = 5 * 60_000


class Total(NamedTuple):
    """The total of a merchant in a window, or of a day. Every accepted event counts in exactly one
    of `payments`, `refunds` and `reports`."""

    payments: int = 0
    gross_cents: int = 0
    refunds: int = 0
    refunded_cents: int = 0
    reports: int = 0

    @property
    def events(self) -> int:
        return self.payments + self.refunds + self.reports

    @property
    def net_cents(self) -> int:
        return self.gross_cents - self.refunded_cents

    def plus(self, other: Total) -> Total:
        return Total(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


Totals = Mapping[tuple[str, str], Total]
Fraud = tuple[str, str]


@dataclass(slots=True)
class Truth:
    """`totals` by merchant and window start; `fraud` as payment and rule; `ids` with the number of
    times that each was sent."""

    records: int = 0
    malformed: int = 0
    duplicates: int = 0
    ids: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    totals: dict[tuple[str, str], Total] = field(default_factory=lambda: defaultdict(Total))
    fraud: set[Fraud] = field(default_factory=set)
    # Delivery statistics, for display only.
    delivery: dict[str, float] = field(default_factory=dict)

    def add(self, arrival: Arrival) -> None:
        self.records += 1
        if arrival.event is None:
            self.malformed += 1
            return
        self.ids[arrival.event.event_id] += 1
        if arrival.kind == "duplicate":
            self.duplicates += 1
        elif arrival.event.type != CLOSING:
            self._count(arrival.event)

    def _count(self, event: Event) -> None:
        amount_cents = event.amount_cents or 0
        total = {
            COMPLETED: Total(payments=1, gross_cents=amount_cents),
            REFUNDED: Total(refunds=1, refunded_cents=amount_cents),
            FRAUD: Total(reports=1),
        }[event.type]
        window = event.merchant, iso(event.time_ms - event.time_ms % WINDOW_MS)
        self.totals[window] = self.totals[window].plus(total)
        if event.payment_id is not None and event.rule is not None:
            self.fraud.add((event.payment_id, event.rule))

    def save(self, path: Path) -> None:
        totals = [[*window, *total] for window, total in sorted(self.totals.items())]
        fields = {
            name: getattr(self, name)
            for name in ("records", "malformed", "duplicates", "ids", "delivery")
        }
        path.write_text(json.dumps({**fields, "totals": totals, "fraud": sorted(self.fraud)}))

    @classmethod
    def load(cls, path: Path) -> Truth:
        fields = json.loads(path.read_text())
        totals = {
            (merchant, window): Total(*numbers)
            for merchant, window, *numbers in fields.pop("totals")
        }
        return cls(
            **{
                **fields,
                "totals": totals,
                "fraud": {(payment, rule) for payment, rule in fields["fraud"]},
            }
        )


def ledger(totals: Totals) -> dict[str, Total]:
    """Return the totals per day."""
    days: dict[str, Total] = defaultdict(Total)
    for (_merchant, window), total in totals.items():
        days[window[:10]] = days[window[:10]].plus(total)
    return dict(sorted(days.items()))


def sum_of(totals: Iterable[Total]) -> Total:
    return reduce(Total.plus, totals, Total())
