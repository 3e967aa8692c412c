"""Payments on Spark: `penstock pipeline run pipelines/payments/pipeline.py -c tables=DIR`

    payments ──> parsed ──> accepted (each event once) ──> totals ──> topic payments-totals, table
    DIR/totals ──> ledger
                   │                                  └──> alerts ──> topic payments-alerts
                   └──> rejected ──> topic payments-dead-letters

Every step is a plain function from DataFrame to DataFrame; `build` puts them together. Money is
whole cents throughout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it

from penstock.spark.pipeline import Pipeline, parse_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.streaming.state import GroupState

PAYMENTS, TOTALS, ALERTS, DEAD_LETTERS = (
    "payments",
    "payments-totals",
    "payments-alerts",
    "payments-dead-letters",
)

# An event that came later than this would be dropped, and the books would not balance.
FAIL_ON_LATE_ROWS = True
WATERMARK_MINUTES = 15
WINDOW = "5 minutes"

SCHEMA = """
    type STRING NOT NULL, event_id STRING NOT NULL, event_time TIMESTAMP NOT NULL, customer STRING NOT NULL, merchant STRING NOT NULL,
    amount_cents LONG, payment_id STRING, rule STRING
"""
_ALERT = "customer STRING, payment_id STRING, time_ms LONG, amount_cents LONG, rule STRING"
# Recent payments as JSON: PySpark (4.3) cannot keep an array in a state.
_CUSTOMER = "ordinary LONG, spent_cents LONG, recent STRING"
_WITH_AMOUNT = ("PaymentCompleted", "PaymentRefunded")
_TYPES = (*_WITH_AMOUNT, "FraudDetected", "Closing")


def build(pipeline: Pipeline) -> dict[str, DataStreamWriter]:
    rows = parsed(pipeline.read(PAYMENTS))
    events = accepted(rows)
    totalled = totals(events)
    tables = pipeline.settings.get("tables", "payments-tables")
    return {
        "dead-letters": pipeline.dead_letters(rejected(rows), DEAD_LETTERS),
        "totals": pipeline.write(as_records(totalled, key="merchant"), TOTALS),
        "table": totalled.writeStream.format("parquet").option("path", f"{tables}/totals"),
        "alerts": pipeline.write(as_records(alerts(events), key="customer"), ALERTS),
    }


def parsed(records: DataFrame) -> DataFrame:
    """The event of each record, or the reason why there is none."""
    rows = parse_json(records, SCHEMA)
    kind, amount = F.col("event.type"), F.col("event.amount_cents")
    unknown = F.when(~kind.isin(*_TYPES), F.concat(F.lit("column type is unknown: "), kind))
    worthless = F.when(
        kind.isin(*_WITH_AMOUNT) & (amount.isNull() | (amount <= 0)),
        F.concat(
            F.lit("column amount_cents is not more than zero: "),
            F.coalesce(amount.cast("string"), F.lit("null")),
        ),
    )
    return rows.withColumn("reason", F.coalesce("reason", unknown, worthless))


def rejected(rows: DataFrame) -> DataFrame:
    return rows.where("reason IS NOT NULL")


def accepted(rows: DataFrame) -> DataFrame:
    """Each event once, however often it was sent."""
    events = rows.where("reason IS NULL").select("event.*")
    return events.withWatermark(
        "event_time", f"{WATERMARK_MINUTES} minutes"
    ).dropDuplicatesWithinWatermark(["event_id"])


def totals(events: DataFrame) -> DataFrame:
    """What each merchant took and gave back in each window."""
    completed, refunded = (F.col("type") == kind for kind in _WITH_AMOUNT)
    return (
        events.where("type != 'Closing'")
        .groupBy("merchant", F.window("event_time", WINDOW))
        .agg(
            F.count_if(completed).alias("payments"),
            _cents(completed).alias("gross_cents"),
            F.count_if(refunded).alias("refunds"),
            _cents(refunded).alias("refunded_cents"),
            F.count_if(F.col("type") == "FraudDetected").alias("reports"),
        )
        .select(
            "merchant",
            F.col("window.start").alias("window_start"),
            "payments",
            "gross_cents",
            "refunds",
            "refunded_cents",
            "reports",
        )
    )


def ledger(totalled: DataFrame) -> DataFrame:
    """The books of each day, from the totals that were written."""
    sums = [
        F.sum(name).alias(name)
        for name in ("payments", "gross_cents", "refunds", "refunded_cents", "reports")
    ]
    days = totalled.groupBy(F.to_date("window_start").alias("day")).agg(*sums)
    return days.withColumn("net_cents", F.col("gross_cents") - F.col("refunded_cents")).orderBy(
        "day"
    )


def alerts(events: DataFrame) -> DataFrame:
    """Payments that look like fraud, by what is known of the customer."""
    payments = events.where("type = 'PaymentCompleted'")
    columns = payments.select(
        "customer", "event_id", F.unix_millis("event_time").alias("time_ms"), "amount_cents"
    )
    found = columns.groupBy("customer").applyInPandasWithState(
        _judge_customer,
        outputStructType=_ALERT,
        stateStructType=_CUSTOMER,
        outputMode="append",
        timeoutConf="NoTimeout",
    )
    return found.select(
        "customer",
        "payment_id",
        F.timestamp_millis("time_ms").alias("event_time"),
        "amount_cents",
        "rule",
    )


def as_records(rows: DataFrame, key: str) -> DataFrame:
    """JSON for a topic; one key keeps its order."""
    return rows.select(F.col(key).alias("key"), F.to_json(F.struct(*rows.columns)).alias("value"))


def _cents(which: Column) -> Column:
    return F.sum(F.when(which, F.col("amount_cents")).otherwise(0))


# The rules. A payment is too large if it is many times what the customer usually pays, and too fast
# if there are many in one minute, late ones counted: then it is an alert for each of them. What is
# found does not depend on how the stream is cut into batches.
LARGE_FACTOR, LARGE_AFTER = 8, 3
FAST_COUNT, FAST_MS = 5, 60_000


class Payment(NamedTuple):
    time_ms: int
    payment_id: str
    amount_cents: int
    fast: bool = False


class Customer(NamedTuple):
    """What is remembered: number and sum of ordinary payments, and those that a late one may yet
    make too fast."""

    ordinary: int = 0
    spent_cents: int = 0
    recent: tuple[Payment, ...] = ()


def judge(known: Customer, new: Iterable[Payment]) -> tuple[Customer, list[tuple[Payment, str]]]:
    """What is known then, and the alerts: a payment and the rule that it broke."""
    payments = sorted(new)
    known, large = _judge_amounts(known, payments)
    everything = _judge_speed(sorted([*known.recent, *payments]))
    already = {payment.payment_id for payment in known.recent if payment.fast}
    fast = [
        (payment, "velocity")
        for payment in everything
        if payment.fast and payment.payment_id not in already
    ]
    oldest_ms = everything[-1].time_ms - WATERMARK_MINUTES * 60_000 - FAST_MS
    return known._replace(
        recent=tuple(payment for payment in everything if payment.time_ms >= oldest_ms)
    ), [*large, *fast]


def _judge_amounts(
    known: Customer, payments: list[Payment]
) -> tuple[Customer, list[tuple[Payment, str]]]:
    large = []
    ordinary, spent_cents = known.ordinary, known.spent_cents
    for payment in payments:
        if ordinary >= LARGE_AFTER and payment.amount_cents * ordinary > LARGE_FACTOR * spent_cents:
            large.append((payment, "amount"))
        else:
            ordinary, spent_cents = ordinary + 1, spent_cents + payment.amount_cents
    return known._replace(ordinary=ordinary, spent_cents=spent_cents), large


def _judge_speed(payments: list[Payment]) -> list[Payment]:
    """Sorted by time: each with the last that is FAST_COUNT - 1 behind it."""
    fast: set[int] = set()
    for first in range(len(payments) - FAST_COUNT + 1):
        last = first + FAST_COUNT - 1
        if payments[last].time_ms - payments[first].time_ms < FAST_MS:
            fast.update(range(first, last + 1))
    return [
        payment._replace(fast=payment.fast or number in fast)
        for number, payment in enumerate(payments)
    ]


def _judge_customer(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    known = Customer()
    if state.exists:
        ordinary, spent_cents, recent = state.get
        known = Customer(ordinary, spent_cents, tuple(Payment(*one) for one in json.loads(recent)))
    rows = (
        row
        for frame in frames
        for row in frame[["time_ms", "event_id", "amount_cents"]].itertuples(index=False, name=None)
    )
    new = [
        Payment(int(time_ms), payment_id, int(amount_cents))
        for time_ms, payment_id, amount_cents in rows
    ]
    known, found = judge(known, new)
    state.update((known.ordinary, known.spent_cents, json.dumps(known.recent)))
    if found:
        told = [
            (key[0], payment.payment_id, payment.time_ms, payment.amount_cents, rule)
            for payment, rule in found
        ]
        yield pd.DataFrame(
            told, columns=["customer", "payment_id", "time_ms", "amount_cents", "rule"]
        )
