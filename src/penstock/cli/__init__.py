"""The command line: one file per noun."""

from __future__ import annotations

import typer

from penstock.cli.consume import consume_command
from penstock.cli.format import format_command
from penstock.cli.log import dump_command
from penstock.cli.produce import produce_command
from penstock.cli.topics import alter_command, create_command, delete_command, describe_command, list_command
from penstock.cli.up import start_command, up_command

app = typer.Typer(
    name="penstock",
    help="Event streaming that speaks Kafka's protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
topics = typer.Typer(help="Topics of a cluster.", no_args_is_help=True)
log = typer.Typer(help="A look into the files of a log.", no_args_is_help=True)

app.command("up")(up_command)
app.command("start")(start_command)
app.add_typer(topics, name="topics")
app.command("produce")(produce_command)
app.command("consume")(consume_command)
app.command("format")(format_command)
app.add_typer(log, name="log")
topics.command("create")(create_command)
topics.command("list")(list_command)
topics.command("describe")(describe_command)
topics.command("alter")(alter_command)
topics.command("delete")(delete_command)
log.command("dump")(dump_command)


@app.callback()
def penstock() -> None:
    """Event streaming that speaks Kafka's protocol."""


@log.callback()
def log_noun() -> None:
    """A look into the files of a log."""


def main() -> None:
    app()
