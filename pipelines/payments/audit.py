"""Compares the output of the pipeline with what was sent, to the cent:
python -m pipelines.payments.audit --help

Reads the topics and the table with Spark and compares them with the generator's expected results.
Exits with 1 if anything differs. Topics are written at least once, so a restart may repeat records;
these are counted but are not errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from pyspark.sql import functions as F  # noqa: N812 - as every Spark user writes it

import penstock.spark
from pipelines.payments import pipeline
from pipelines.payments.truth import Fraud, Total, Totals, Truth, sum_of
from pipelines.payments.truth import ledger as true_ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """The output of the pipeline. `dead_letters` are topic, partition and offset from the headers.
    Repeated records are included."""

    records: int
    ids: Counter[str]
    table: list[tuple[tuple[str, str], Total]]
    totals: list[tuple[tuple[str, str], Total]]
    alerts: list[Fraud]
    dead_letters: list[tuple[str, str, str]]
    ledger: dict[str, Total]


class Line(NamedTuple):
    """One line of the report, and whether the value is correct."""

    name: str
    text: str
    correct: bool = True


def read_output(spark: SparkSession, bootstrap_servers: str, tables: Path) -> PipelineOutput:
    def topic(name: str) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": name,
            "includeHeaders": "true",
        }
        return spark.read.format("penstock").options(**options).load()

    readable = F.when(F.col("reason").isNull(), F.col("event.event_id")).alias("id")
    sent = pipeline.parsed(topic(pipeline.PAYMENTS)).select(readable).toArrow()["id"]
    table = spark.read.parquet(str(tables / "totals"))
    totals = (
        topic(pipeline.TOTALS)
        .select(F.from_json(F.col("value").cast("string"), table.schema).alias("total"))
        .select("total.*")
    )
    alerts = topic(pipeline.ALERTS).select(
        F.from_json(F.col("value").cast("string"), "payment_id STRING, rule STRING").alias("alert")
    )
    headers = F.map_from_entries(F.slice("headers", -4, 4))
    places = [headers[name].cast("string").alias(name) for name in ("topic", "partition", "offset")]
    books = pipeline.ledger(table)
    books.write.mode("overwrite").parquet(str(tables / "ledger"))
    return PipelineOutput(
        records=len(sent),
        ids=Counter(sent.drop_null().to_pylist()),
        table=_windows(table),
        totals=_windows(totals),
        alerts=[(row.payment_id, row.rule) for row in alerts.select("alert.*").collect()],
        dead_letters=[tuple(row) for row in topic(pipeline.DEAD_LETTERS).select(*places).collect()],
        ledger={
            str(row.day): Total(*(row[name] for name in Total._fields)) for row in books.collect()
        },
    )


def _windows(totals: DataFrame) -> list[tuple[tuple[str, str], Total]]:
    start = F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("start")
    rows = totals.select("merchant", start, *Total._fields).collect()
    return [
        ((row.merchant, row.start), Total(*(row[name] for name in Total._fields))) for row in rows
    ]


def audit(truth: Truth, output: PipelineOutput) -> list[Line]:
    table, totals = dict(output.table), dict(output.totals)
    events, counted = (
        sum_of(truth.totals.values()).events,
        sum_of(total for _window, total in output.table).events,
    )
    lost, twice = _difference(truth.totals, output.table)
    missing, unexpected = Counter(truth.ids) - output.ids, output.ids - Counter(truth.ids)
    dead = len(set(output.dead_letters))
    right, wrong = set(output.alerts) & truth.fraud, set(output.alerts) - truth.fraud
    pause = (
        f"at most {truth.delivery['longest_pause_s'] * 1000:,.0f} ms without an acknowledgement"
        if truth.delivery
        else "not measured"
    )
    return [
        Line(
            "events in",
            (
                f"{truth.records:,} sent: {events:,} events, {truth.duplicates:,} of them twice, "
                f"{truth.malformed:,} malformed"
            ),
        ),
        Line(
            "in the topic",
            f"{output.records:,}; {missing.total():,} lost, {unexpected.total():,} too many",
            output.records == truth.records and not missing and not unexpected,
        ),
        Line(
            "events out",
            f"{counted:,} counted in {len(output.table):,} totals, {dead:,} dead letters",
            dead == truth.malformed,
        ),
        Line("lost", f"{lost:,}", lost == 0),
        Line("duplicates", f"{twice:,}", twice == 0),
        Line(
            "totals",
            f"{_agree(table, totals)}{_again(output.totals)}",
            totals == table == truth.totals,
        ),
        Line(
            "alerts",
            (
                f"{len(right):,} right, {len(wrong):,} wrong, {len(truth.fraud - right):,} "
                f"missed{_again(output.alerts)}"
            ),
            right == truth.fraud and not wrong,
        ),
        Line("failover", pause),
        *_balance(true_ledger(truth.totals), output.ledger),
    ]


def _difference(
    expected: Totals, written: Iterable[tuple[tuple[str, str], Total]]
) -> tuple[int, int]:
    """Return the number of missing and of surplus events over all windows."""
    missing: Counter[tuple[str, str, str]] = Counter()
    for window, total in expected.items():
        missing.update(_counts(window, total))
    for window, total in written:
        missing.subtract(_counts(window, total))
    return (+missing).total(), (-missing).total()


def _counts(window: tuple[str, str], total: Total) -> dict[tuple[str, str, str], int]:
    return {(*window, name): getattr(total, name) for name in ("payments", "refunds", "reports")}


def _agree(table: Totals, topic: Totals) -> str:
    if topic == table:
        return "topic and table agree"
    return (
        f"{len(table.keys() - topic.keys()):,} only in the table, "
        f"{len(topic.keys() - table.keys()):,} only in the topic"
    )


def _again(written: Sequence[Hashable]) -> str:
    repeated = len(written) - len(set(written))
    return f"; {repeated:,} written again" if repeated else ""


def _balance(expected: dict[str, Total], written: dict[str, Total]) -> list[Line]:
    lines = []
    for day in sorted({*expected, *written}):
        books, truth = written.get(day, Total()), expected.get(day, Total())
        text = (
            f"{day}  {euros(books.gross_cents)} taken - {euros(books.refunded_cents)} refunded "
            f"= {euros(books.net_cents)} EUR"
        )
        lines.append(Line("ledger", text, books == truth))
    off_cents = sum_of(written.values()).net_cents - sum_of(expected.values()).net_cents
    return [
        *lines,
        Line("balance", f"{euros(off_cents)} EUR off what was sent", expected == written),
    ]


def euros(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def main(
    bootstrap_server: Annotated[
        str, typer.Option(help="Brokers to connect to first, as host:port.")
    ] = "localhost:9092",
    truth: Annotated[Path, typer.Option(help="The file that the generator wrote.")] = Path(
        "payments-truth.json"
    ),
    tables: Annotated[
        Path,
        typer.Option(help="The pipeline's tables; the audit adds the ledger."),
    ] = Path("payments-tables"),
) -> None:
    """Compare the output of the pipeline with what was sent."""
    spark = penstock.spark.session(**{"spark.app.name": "payments-audit"})
    lines = audit(Truth.load(truth), read_output(spark, bootstrap_server, tables))
    for line in lines:
        typer.echo(f"{'ok ' if line.correct else 'BAD'}  {line.name:<13} {line.text}")
    if not all(line.correct for line in lines):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
