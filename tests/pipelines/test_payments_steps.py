"""The steps of the pipeline on small DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipelines.payments import pipeline
from pipelines.payments.events import (
    COMPLETED,
    FRAUD,
    REFUNDED,
    Event,
    Scenario,
    closing,
    malformed,
)
from tests.spark.live import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# In one pytest-xdist worker, with the shared Spark session.
pytestmark = pytest.mark.xdist_group("spark")

PAYMENT = Event(COMPLETED, "e-1", Scenario().start_ms, "c-1", "m-1", 1_050)
REASONS = [
    "the value is null",
    "the value is empty",
    "the value is not a JSON object",
    "the value is not a JSON object",
    "the value is not a JSON object",
    "column type is unknown: PaymentImagined",
    "column event_id is missing",
    "column event_time is not of type timestamp: yesterday",
    "column merchant is missing",
    "column amount_cents is not of type bigint: 12,50",
    "column amount_cents is not positive: -100",
]


def records(*values: bytes | None) -> DataFrame:
    rows = [(b"key", value, "payments", 0, offset, None) for offset, value in enumerate(values)]
    schema = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, headers "
        "ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    return session().createDataFrame(rows, schema)


def events(*parsed: Event) -> DataFrame:
    return pipeline.parsed(records(*(event.encoded() for event in parsed))).select("event.*")


def dicts(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows.collect()]


def test_malformed_events_are_rejected_with_a_reason() -> None:
    rows = (
        pipeline.rejected(pipeline.parsed(records(*malformed(PAYMENT), PAYMENT.encoded())))
        .orderBy("offset")
        .collect()
    )
    assert len(rows) == len(REASONS)
    for row, reason in zip(rows, REASONS, strict=True):
        assert row.reason.startswith(reason)


def test_all_fields_of_an_event_are_parsed() -> None:
    report = Event(FRAUD, "e-3", PAYMENT.time_ms, "c-1", "m-1", payment_id="e-1", rule="amount")
    rows = pipeline.parsed(
        records(PAYMENT.encoded(), report.encoded(), closing(Scenario(), 0).value)
    ).orderBy("offset")
    assert [row.reason for row in rows.collect()] == [None, None, None]
    seen = dicts(
        rows.selectExpr("event.*", "unix_millis(event.event_time) AS time_ms").drop("event_time")
    )
    assert seen[:2] == [PAYMENT._asdict(), report._asdict()]


def test_totals() -> None:
    minute_ms = 60_000
    first = [
        PAYMENT._replace(event_id=str(number), amount_cents=100 + number) for number in range(3)
    ]
    refund = Event(REFUNDED, "r", PAYMENT.time_ms + 4 * minute_ms, "c-1", "m-1", 101, "1")
    report = Event(FRAUD, "f", PAYMENT.time_ms, "c-1", "m-1", payment_id="1", rule="amount")
    others = [
        PAYMENT._replace(merchant="m-2"),
        PAYMENT._replace(time_ms=PAYMENT.time_ms + 30 * minute_ms, amount_cents=7),
    ]
    totalled = pipeline.totals(
        events(*first, refund, report, *others, closing(Scenario(), 0).event or PAYMENT)
    ).cache()
    numbers = {
        (row.merchant, str(row.window_start)[11:16]): tuple(row)[2:] for row in totalled.collect()
    }
    assert numbers == {
        ("m-1", "23:30"): (3, 303, 1, 101, 1),
        ("m-2", "23:30"): (1, 1_050, 0, 0, 0),
        ("m-1", "00:00"): (1, 7, 0, 0, 0),
    }


@pytest.mark.parametrize("key", ["merchant", "customer"])
def test_records_have_key_and_json_value(key: str) -> None:
    rows = dicts(
        pipeline.as_records(events(PAYMENT).select("merchant", "customer", "amount_cents"), key=key)
    )
    assert rows == [
        {
            "key": getattr(PAYMENT, key),
            "value": '{"merchant":"m-1","customer":"c-1","amount_cents":1050}',
        }
    ]
