"""The command line: one file per noun, loaded when it is called, so that a command starts as fast as it can."""

from __future__ import annotations

import typer

app = typer.Typer(name="penstock", help="Event streaming that speaks Kafka's protocol.", no_args_is_help=True, add_completion=False)


def main() -> None:
    app()
