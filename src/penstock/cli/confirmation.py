"""Confirmation before a command destroys something."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

USAGE_ERROR = 2

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(command: str, question: str, *, yes: bool) -> None:
    """Return if the user agrees. Without a terminal nobody can be asked, and --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        print(
            f"penstock {command}: {question} Nobody can be asked, as the input is no terminal: "
            "give --yes",
            file=sys.stderr,
        )
        raise typer.Exit(USAGE_ERROR)
    if not typer.confirm(question, default=False, err=True):
        print("Nothing was changed.", file=sys.stderr)
        raise typer.Exit(1)
