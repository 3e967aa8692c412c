"""Compares the output of the pipeline with what was sent, to the cent:
python -m pipelines.payments.audit --help

Reads the topics as any Kafka consumer with isolation.level=read_committed, and the table as any
reader of Parquet, without Spark and without Penstock's client. Exits with 1 if anything differs: a
result that is missing, wrong or there twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from pipelines.payments import pipeline
from pipelines.payments.events import iso
from pipelines.payments.truth import Fraud, Total, Totals, Truth, ledger, sum_of

# The longest time without a record before the audit gives up.
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """The output of the pipeline. `ids` are those of the records that are no dead letters,
    `dead_letters` are topic, partition and offset of the records. Repeated records are included."""

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


def read_output(bootstrap_servers: str, tables: Path) -> PipelineOutput:
    dead_letters = [
        _origin(message) for message in consume(bootstrap_servers, pipeline.DEAD_LETTERS)
    ]
    payments = list(consume(bootstrap_servers, pipeline.PAYMENTS))
    rejected = set(dead_letters)
    totals = [json.loads(m.value() or b"") for m in consume(bootstrap_servers, pipeline.TOTALS)]
    alerts = [json.loads(m.value() or b"") for m in consume(bootstrap_servers, pipeline.ALERTS)]
    table = [_window(row) for row in read_table(tables / "totals")]
    return PipelineOutput(
        records=len(payments),
        ids=Counter(_event_id(m) for m in payments if _position(m) not in rejected),
        table=table,
        totals=[_window(row) for row in totals],
        alerts=[(alert["payment_id"], alert["rule"]) for alert in alerts],
        dead_letters=dead_letters,
        ledger=ledger(dict(table)),
    )


def consume(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yield all committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "payments-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"{topic} gave no record for {_TIMEOUT_S:.0f} seconds")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise ConnectionError(f"{topic}: {error}")
    finally:
        consumer.close()


def read_table(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a table that Spark's file sink wrote. Its log names the files of finished
    batches; other files are left from batches that were interrupted."""
    log = directory / "_spark_metadata"
    batches = {file.stem: file for file in log.iterdir() if file.stem.isdecimal()}
    compacted = max((int(n) for n, file in batches.items() if file.suffix), default=-1)
    entries = [
        json.loads(line)
        for number, file in batches.items()
        if int(number) >= compacted
        for line in file.read_text().splitlines()[1:]
    ]
    files = [unquote(urlsplit(entry["path"]).path) for entry in entries]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _window(row: dict[str, Any]) -> tuple[tuple[str, str], Total]:
    start = row["window_start"]
    if not isinstance(start, str):
        aware = start if start.tzinfo else start.replace(tzinfo=UTC)
        start = iso(round(aware.timestamp() * 1000))
    return (row["merchant"], start), Total(*(row[name] for name in Total._fields))


def _origin(message: Message) -> tuple[str, str, str]:
    """Return topic, partition and offset of the record that a dead letter holds."""
    headers = message.headers()
    assert isinstance(headers, list), headers
    last = {name: value.decode() for name, value in headers[-4:] if isinstance(value, bytes)}
    return last["topic"], last["partition"], last["offset"]


def _position(message: Message) -> tuple[str, str, str]:
    return str(message.topic()), str(message.partition()), str(message.offset())


def _event_id(message: Message) -> str:
    """Return the event id of a record that the pipeline accepted."""
    try:
        return str(json.loads(message.value() or b"")["event_id"])
    except (KeyError, TypeError, ValueError):
        return f"no event at {':'.join(_position(message))}"


def audit(truth: Truth, output: PipelineOutput) -> list[Line]:
    table, totals = dict(output.table), dict(output.totals)
    events, counted = (
        sum_of(truth.totals.values()).events,
        sum_of(total for _window, total in output.table).events,
    )
    lost, twice = _difference(truth.totals, output.table)
    missing, unexpected = Counter(truth.ids) - output.ids, output.ids - Counter(truth.ids)
    dead = len(set(output.dead_letters))
    twice += _repeated(output.totals) + _repeated(output.alerts) + _repeated(output.dead_letters)
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
        *_balance(ledger(truth.totals), output.ledger),
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


def _repeated(written: Sequence[Hashable]) -> int:
    return len(written) - len(set(written))


def _again(written: Sequence[Hashable]) -> str:
    repeated = _repeated(written)
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
    tables: Annotated[Path, typer.Option(help="The directory of the pipeline's tables.")] = Path(
        "payments-tables"
    ),
) -> None:
    """Compare the output of the pipeline with what was sent."""
    lines = audit(Truth.load(truth), read_output(bootstrap_server, tables))
    for line in lines:
        typer.echo(f"{'ok ' if line.correct else 'BAD'}  {line.name:<13} {line.text}")
    if not all(line.correct for line in lines):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
