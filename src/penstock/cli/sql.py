"""penstock sql: asks topics a question, and prints the answer."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.pipeline import ALL_CORES, Master, told
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.sql import Sample


def sql_command(
    query: Annotated[
        str, typer.Argument(metavar="SQL", help="Spark's SQL, with topic('name') as a table.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a row, as they come.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
    master: Master = ALL_CORES,
) -> None:
    """Asks topics a question: penstock sql "select customer, sum(amount) from topic('orders') group
    by customer"."""
    with told("sql"):
        from pyspark.errors import PySparkException

        from penstock.spark.pipeline.errors import reason
        from penstock.spark.session import quiet_session
        from penstock.spark.shipping import ship
        from penstock.spark.sql import ask, sample, topics_in

        samples = {
            topic: sample(bootstrap_server, topic) for topic in dict.fromkeys(topics_in(query))
        }
        with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
            settings = {
                "spark.app.name": "penstock sql",
                "spark.master": master,
                **ship(master, Path(directory)),
            }
            spark = quiet_session(Path(directory) / "spark.log", **settings)
            try:
                answer = ask(spark, query, bootstrap_server, samples)
                for one in samples.values():
                    _say(one)
                for line in _lines(answer, as_json=as_json):
                    print(line)
                sys.stdout.flush()
            except PySparkException as error:
                raise CommandFailed(_advised(reason(str(error)))) from error
            finally:
                spark.stop()


def _advised(said: str) -> str:
    """A topic that is named like a table is what most people try first."""
    missing = re.match(
        r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view `(.+?)` cannot be found", said
    )
    return (
        f"there is no table {missing[1]}: a topic of that name is topic('{missing[1]}')"
        if missing
        else said
    )


def _say(seen: Sample) -> None:
    what = f"{len(seen.objects):,} JSON objects among the newest {seen.records:,} records"
    print(f"penstock sql: the fields of {seen.topic} are those of {what}", file=sys.stderr)


def _lines(answer: DataFrame, *, as_json: bool) -> Iterator[str]:
    columns = answer.columns
    if as_json:
        for row in answer.toLocalIterator():
            yield json.dumps(dict(zip(columns, map(_plain, row), strict=True)), ensure_ascii=False)
    else:
        yield from table(columns, [[_text(cell) for cell in row] for row in answer.collect()])


def _plain(cell: Any) -> Any:
    """What JSON has a form for."""
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).decode(errors="replace")
    if isinstance(cell, tuple):
        return (
            {name: _plain(one) for name, one in zip(cell.__fields__, cell, strict=True)}
            if hasattr(cell, "__fields__")
            else list(cell)
        )
    if isinstance(cell, list):
        return [_plain(one) for one in cell]
    if isinstance(cell, dict):
        return {str(_plain(name)): _plain(one) for name, one in cell.items()}
    return cell if cell is None or isinstance(cell, (bool, int, float, str)) else str(cell)


def _text(cell: Any) -> str:
    plain = _plain(cell)
    found = (
        plain
        if isinstance(plain, str)
        else "null"
        if plain is None
        else json.dumps(plain, ensure_ascii=False)
    )
    # A row is a line, and a terminal obeys what it is told.
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in found
    )
