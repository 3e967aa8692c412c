"""The command line: one file per noun."""

from __future__ import annotations

import typer

from penstock.cli.format import format_command
from penstock.cli.log import dump_command

app = typer.Typer(
    name="penstock",
    help="Event streaming that speaks Kafka's protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
log = typer.Typer(help="A look into the files of a log.", no_args_is_help=True)

app.command("format")(format_command)
app.add_typer(log, name="log")
log.command("dump")(dump_command)


@app.callback()
def penstock() -> None:
    """Event streaming that speaks Kafka's protocol."""


@log.callback()
def log_noun() -> None:
    """A look into the files of a log."""


def main() -> None:
    app()
