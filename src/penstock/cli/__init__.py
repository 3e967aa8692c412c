"""The command line: one file per noun, loaded when its word is called, so that `penstock up` does not wait for the others."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

# word -> subcommand ("" for the word itself) -> the function, as module:name.
COMMANDS: dict[str, dict[str, str]] = {
    "up": {"": "up:up_command"},
    "start": {"": "up:start_command"},
    "topics": {
        "create": "topics:create_command",
        "list": "topics:list_command",
        "describe": "topics:describe_command",
        "alter": "topics:alter_command",
        "delete": "topics:delete_command",
    },
    "produce": {"": "produce:produce_command"},
    "consume": {"": "consume:consume_command"},
    "format": {"": "format:format_command"},
    "log": {"dump": "log:dump_command"},
}
NOUNS = {"topics": "Topics of a cluster.", "log": "A look into the files of a log."}


def build(*words: str) -> typer.Typer:
    """The command line with these words, or with all of them."""
    app = typer.Typer(name="penstock", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.callback()
    def penstock() -> None:
        """Event streaming that speaks Kafka's protocol."""

    for word in words or COMMANDS:
        group = app
        if word in NOUNS:
            group = typer.Typer(help=NOUNS[word], no_args_is_help=True)
            group.callback()(_noun)
            app.add_typer(group, name=word)
        for name, where in COMMANDS[word].items():
            module, function = where.split(":")
            group.command(name or word)(getattr(import_module(f"{__name__}.{module}"), function))
    return app


def _noun() -> None:
    """Without it, typer would make a noun with one command that command itself."""


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    build(*([word] if word in COMMANDS else []))()
