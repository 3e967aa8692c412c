"""The audit accepts output that equals what was sent, and reports every difference."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.payments.audit import PipelineOutput, audit, euros, read_table
from pipelines.payments.events import Payments, Scenario
from pipelines.payments.truth import Total, Truth, ledger


@pytest.fixture(scope="module")
def truth() -> Truth:
    truth = Truth()
    for arrival in Payments(Scenario(payments=3_000, customers=200, merchants=3)):
        truth.add(arrival)
    return truth


@pytest.fixture
def correct(truth: Truth) -> PipelineOutput:
    windows = list(truth.totals.items())
    places = [("payments", "0", str(number)) for number in range(truth.malformed)]
    return PipelineOutput(
        truth.records,
        Counter(truth.ids),
        windows,
        windows,
        list(truth.fraud),
        places,
        ledger(truth.totals),
    )


def errors(truth: Truth, output: PipelineOutput) -> dict[str, str]:
    return {line.name: line.text for line in audit(truth, output) if not line.correct}


def test_complete_output_is_correct(truth: Truth, correct: PipelineOutput) -> None:
    lines = {line.name: line.text for line in audit(truth, correct)}
    assert errors(truth, correct) == {}
    assert lines["lost"] == lines["duplicates"] == "0"
    assert lines["balance"] == "0.00 EUR off what was sent"


def test_repeated_records_are_duplicates(truth: Truth, correct: PipelineOutput) -> None:
    repeated = replace(
        correct,
        totals=correct.totals * 2,
        alerts=[*correct.alerts, correct.alerts[0]],
        dead_letters=[*correct.dead_letters, correct.dead_letters[0]],
    )
    assert errors(truth, repeated) == {"duplicates": str(len(correct.totals) + 2)}
    assert (
        f"{len(correct.totals)} written again"
        in {line.name: line.text for line in audit(truth, repeated)}["totals"]
    )


def test_payment_counted_twice(truth: Truth, correct: PipelineOutput) -> None:
    (window, total), *rest = correct.table
    more = [(window, total.plus(Total(payments=1, gross_cents=5))), *rest]
    output = replace(correct, table=more, totals=more, ledger=ledger(dict(more)))
    assert errors(truth, output).keys() == {"duplicates", "totals", "ledger", "balance"}
    assert errors(truth, output)["balance"] == "0.05 EUR off what was sent"


def test_missing_total(truth: Truth, correct: PipelineOutput) -> None:
    (_window, total), *rest = correct.table
    output = replace(correct, table=rest, ledger=ledger(dict(rest)))
    assert errors(truth, output)["lost"] == str(total.events)


def test_duplicate_total(truth: Truth, correct: PipelineOutput) -> None:
    output = replace(correct, table=[correct.table[0], *correct.table])
    assert errors(truth, output) == {"duplicates": str(correct.table[0][1].events)}


def test_wrong_and_missing_alerts(truth: Truth, correct: PipelineOutput) -> None:
    output = replace(correct, alerts=[*correct.alerts[1:], ("e-0", "amount")])
    assert errors(truth, output) == {"alerts": f"{len(truth.fraud) - 1} right, 1 wrong, 1 missed"}


def test_lost_and_duplicate_records_in_the_topic(truth: Truth, correct: PipelineOutput) -> None:
    first, second, *_rest = truth.ids
    output = replace(correct, ids=correct.ids + Counter([first]) - Counter([second]))
    assert errors(truth, output) == {"in the topic": f"{truth.records:,}; 1 lost, 1 too many"}


def test_missing_dead_letter(truth: Truth, correct: PipelineOutput) -> None:
    assert errors(truth, replace(correct, dead_letters=correct.dead_letters[1:])).keys() == {
        "events out"
    }


def test_table_has_the_files_of_finished_batches(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("a b", "c", "d", "interrupted"):
        pq.write_table(pa.table({"name": [name]}), tmp_path / f"{name}.parquet")

    def note(batch: str, *names: str) -> None:
        paths = [(tmp_path / f"{name}.parquet").as_uri() for name in names]
        entries = [json.dumps({"path": path, "action": "add"}) for path in paths]
        (log / batch).write_text("\n".join(["v1", *entries]))

    note("8", "a b")
    note("9.compact", "a b", "c")
    note("10", "d")
    (log / ".10.crc").write_bytes(b"")
    assert sorted(row["name"] for row in read_table(tmp_path)) == ["a b", "c", "d"]


@pytest.mark.parametrize(
    ("cents", "text"), [(0, "0.00"), (123_456_789, "1,234,567.89"), (-5, "-0.05")]
)
def test_euros(cents: int, text: str) -> None:
    assert euros(cents) == text
