"""Runs a SQL query over topics and prints the result (penstock sql)."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import print_table
from penstock.cli.pipeline.commands import ALL_CORES, Master, report_errors
from penstock.cli.session import LOCAL, BootstrapServer, CommandFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.sql import TopicSample


def sql_command(
    query: Annotated[
        str, typer.Argument(metavar="SQL", help="A Spark SQL query; topic('name') is a table.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per row as rows arrive.")
    ] = False,
    bootstrap_server: BootstrapServer = LOCAL,
    master: Master = ALL_CORES,
) -> None:
    """Run a SQL query over topics: penstock sql "select customer, sum(amount) from topic('orders')
    group by customer"."""
    with report_errors("sql"):
        from pyspark.errors import PySparkException

        from penstock.spark.errors import spark_reason
        from penstock.spark.session import quiet_session, start_java
        from penstock.spark.shipping import shipping_conf
        from penstock.spark.sql import check_with_parser, query_topics, sample_topic
        from penstock.spark.sql_text import check_text, topics_in

        # From the cheapest check to the dearest: text, topics, Spark's parser, Spark itself.
        _check(check_text, query)
        samples = {
            topic: sample_topic(bootstrap_server, topic)
            for topic in dict.fromkeys(topics_in(query))
        }
        with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
            log = Path(directory) / "spark.log"
            conf = {
                "spark.app.name": "penstock sql",
                "spark.master": master,
                # A query ends before anyone could look at it.
                "spark.ui.enabled": "false",
                **shipping_conf(master, Path(directory)),
            }
            jvm = start_java(log, **conf)
            _check(lambda text: check_with_parser(jvm, text), query)
            spark = quiet_session(log, **conf)
            try:
                result = query_topics(spark, query, bootstrap_server, samples)
                for sample in samples.values():
                    _print_sample(sample)
                _print_rows(result, as_json=as_json)
                sys.stdout.flush()
            except PySparkException as error:
                raise CommandFailed(_with_advice(spark_reason(str(error)))) from error
            finally:
                spark.stop()


def _check(check: Callable[[str], None], query: str) -> None:
    from penstock.spark.sql_text import SqlTextError

    try:
        check(query)
    except SqlTextError as error:
        raise CommandFailed(str(error)) from error


def _with_advice(reason: str) -> str:
    """Explain topic(...) to users who wrote the topic's name as a table."""
    missing = re.match(
        r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view `(.+?)` cannot be found", reason
    )
    if missing is None:
        return reason
    return f"there is no table {missing[1]}: write topic('{missing[1]}') for a topic"


def _print_sample(sample: TopicSample) -> None:
    print(
        f"penstock sql: the columns of {sample.topic} come from {len(sample.objects):,} JSON "
        f"objects among its newest {sample.records:,} records",
        file=sys.stderr,
    )


def _print_rows(result: DataFrame, *, as_json: bool) -> None:
    columns = result.columns
    if as_json:
        for row in result.toLocalIterator():
            values = dict(zip(columns, map(_plain, row), strict=True))
            print(json.dumps(values, ensure_ascii=False))
    else:
        print_table(columns, [[_text(cell) for cell in row] for row in result.collect()])


def _plain(cell: Any) -> Any:
    """Convert a cell to a value that JSON can represent."""
    if isinstance(cell, (bytes, bytearray)):
        return bytes(cell).decode(errors="replace")
    if isinstance(cell, tuple):
        return (
            {name: _plain(value) for name, value in zip(cell.__fields__, cell, strict=True)}
            if hasattr(cell, "__fields__")
            else list(cell)
        )
    if isinstance(cell, list):
        return [_plain(item) for item in cell]
    if isinstance(cell, dict):
        return {str(_plain(key)): _plain(value) for key, value in cell.items()}
    return cell if cell is None or isinstance(cell, (bool, int, float, str)) else str(cell)


def _text(cell: Any) -> str:
    plain = _plain(cell)
    if plain is None:
        text = "null"
    else:
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    # Escape line breaks, which would break the table, and terminal control sequences.
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
