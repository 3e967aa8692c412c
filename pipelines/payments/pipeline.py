"""Payments on Spark: `penstock pipeline run pipelines/payments/pipeline.py -c tables=DIR`

    payments ──> parsed ──> accepted ──┬──> totals ──> topic payments-totals, table DIR/totals
                   │    (deduplicated) └──> alerts ──> topic payments-alerts
                   └──> rejected ──> topic payments-dead-letters

Every step is a plain function from DataFrame to DataFrame; `build` combines them. Amounts are
integers in cents. The topics and the table have every result exactly once, also after a restart.
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

# Spark drops events that arrive later than the watermark; the totals would then be wrong.
FAIL_ON_LATE_ROWS = True
WATERMARK_MINUTES = 15
WINDOW = "5 minutes"

SCHEMA = """
    type STRING NOT NULL, event_id STRING NOT NULL, event_time TIMESTAMP NOT NULL,
    customer STRING NOT NULL, merchant STRING NOT NULL,
    amount_cents LONG, payment_id STRING, rule STRING
"""
_ALERT = "customer STRING, payment_id STRING, time_ms LONG, amount_cents LONG, rule STRING"
# Recent payments are JSON, because PySpark 4.3 does not support arrays in this state.
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
    """Parse the event of each record, or set `reason`."""
    rows = parse_json(records, SCHEMA)
    kind, amount = F.col("event.type"), F.col("event.amount_cents")
    unknown = F.when(~kind.isin(*_TYPES), F.concat(F.lit("column type is unknown: "), kind))
    not_positive = F.when(
        kind.isin(*_WITH_AMOUNT) & (amount.isNull() | (amount <= 0)),
        F.concat(
            F.lit("column amount_cents is not positive: "),
            F.coalesce(amount.cast("string"), F.lit("null")),
        ),
    )
    return rows.withColumn("reason", F.coalesce("reason", unknown, not_positive))


def rejected(rows: DataFrame) -> DataFrame:
    return rows.where("reason IS NOT NULL")


def accepted(rows: DataFrame) -> DataFrame:
    """Select the valid events and drop duplicates."""
    events = rows.where("reason IS NULL").select("event.*")
    return events.withWatermark(
        "event_time", f"{WATERMARK_MINUTES} minutes"
    ).dropDuplicatesWithinWatermark(["event_id"])


def totals(events: DataFrame) -> DataFrame:
    """Sum payments and refunds per merchant and window."""
    completed, refunded = (F.col("type") == kind for kind in _WITH_AMOUNT)
    return (
        events.where("type != 'Closing'")
        .groupBy("merchant", F.window("event_time", WINDOW))
        .agg(
            F.count_if(completed).alias("payments"),
            _sum_cents(completed).alias("gross_cents"),
            F.count_if(refunded).alias("refunds"),
            _sum_cents(refunded).alias("refunded_cents"),
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


def alerts(events: DataFrame) -> DataFrame:
    """Detect fraudulent payments from the state of each customer."""
    payments = events.where("type = 'PaymentCompleted'")
    columns = payments.select(
        "customer", "event_id", F.unix_millis("event_time").alias("time_ms"), "amount_cents"
    )
    detected = columns.groupBy("customer").applyInPandasWithState(
        _detect_customer_fraud,
        outputStructType=_ALERT,
        stateStructType=_CUSTOMER,
        outputMode="append",
        timeoutConf="NoTimeout",
    )
    return detected.select(
        "customer",
        "payment_id",
        F.timestamp_millis("time_ms").alias("event_time"),
        "amount_cents",
        "rule",
    )


def as_records(rows: DataFrame, key: str) -> DataFrame:
    """Return records with a key column and the row as JSON. Records with the same key keep their
    order."""
    return rows.select(F.col(key).alias("key"), F.to_json(F.struct(*rows.columns)).alias("value"))


def _sum_cents(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("amount_cents")).otherwise(0))


# The fraud rules. "amount": the payment is many times the customer's average. "velocity": the
# customer pays many times within a minute, late events included; each of these payments is an
# alert. The alerts do not depend on how the stream is divided into batches.
LARGE_FACTOR, LARGE_AFTER = 8, 3
FAST_COUNT, FAST_MS = 5, 60_000


class Payment(NamedTuple):
    time_ms: int
    payment_id: str
    amount_cents: int
    fast: bool = False


class Customer(NamedTuple):
    """The state of a customer: number and sum of ordinary payments, and the recent payments that a
    late event can still turn into alerts."""

    ordinary: int = 0
    spent_cents: int = 0
    recent: tuple[Payment, ...] = ()


def detect_fraud(
    customer: Customer, new: Iterable[Payment]
) -> tuple[Customer, list[tuple[Payment, str]]]:
    """Return the new state of the customer, and the alerts: payment and rule."""
    payments = sorted(new)
    customer, large = _check_amounts(customer, payments)
    recent = _mark_fast(sorted([*customer.recent, *payments]))
    alerted = {payment.payment_id for payment in customer.recent if payment.fast}
    fast = [
        (payment, "velocity")
        for payment in recent
        if payment.fast and payment.payment_id not in alerted
    ]
    oldest_ms = recent[-1].time_ms - WATERMARK_MINUTES * 60_000 - FAST_MS
    return customer._replace(
        recent=tuple(payment for payment in recent if payment.time_ms >= oldest_ms)
    ), [*large, *fast]


def _check_amounts(
    customer: Customer, payments: list[Payment]
) -> tuple[Customer, list[tuple[Payment, str]]]:
    large = []
    ordinary, spent_cents = customer.ordinary, customer.spent_cents
    for payment in payments:
        if ordinary >= LARGE_AFTER and payment.amount_cents * ordinary > LARGE_FACTOR * spent_cents:
            large.append((payment, "amount"))
        else:
            ordinary, spent_cents = ordinary + 1, spent_cents + payment.amount_cents
    return customer._replace(ordinary=ordinary, spent_cents=spent_cents), large


def _mark_fast(payments: list[Payment]) -> list[Payment]:
    """Mark payments of which FAST_COUNT are within FAST_MS. The payments must be sorted by time."""
    fast: set[int] = set()
    for first in range(len(payments) - FAST_COUNT + 1):
        last = first + FAST_COUNT - 1
        if payments[last].time_ms - payments[first].time_ms < FAST_MS:
            fast.update(range(first, last + 1))
    return [
        payment._replace(fast=payment.fast or index in fast)
        for index, payment in enumerate(payments)
    ]


def _detect_customer_fraud(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    customer = Customer()
    if state.exists:
        ordinary, spent_cents, recent = state.get
        payments = tuple(Payment(*fields) for fields in json.loads(recent))
        customer = Customer(ordinary, spent_cents, payments)
    values = (
        row
        for frame in frames
        for row in frame[["time_ms", "event_id", "amount_cents"]].itertuples(index=False, name=None)
    )
    new = [
        Payment(int(time_ms), payment_id, int(amount_cents))
        for time_ms, payment_id, amount_cents in values
    ]
    customer, detected = detect_fraud(customer, new)
    state.update((customer.ordinary, customer.spent_cents, json.dumps(customer.recent)))
    if detected:
        rows = [
            (key[0], payment.payment_id, payment.time_ms, payment.amount_cents, rule)
            for payment, rule in detected
        ]
        yield pd.DataFrame(
            rows, columns=["customer", "payment_id", "time_ms", "amount_cents", "rule"]
        )
