"""The command line: one file per noun, loaded when its word is called, so that `penstock up` does
not wait for the others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.cli.options import for_typer, plain_arguments

if TYPE_CHECKING:
    import typer

# word -> subcommand ("" for the word itself) -> the function, as module:name.
COMMANDS: dict[str, dict[str, str]] = {
    "up": {"": "up:up_command"},
    "start": {"": "up:start_command"},
    "nodes": {
        "list": "nodes:list_command",
        "kill": "nodes:kill_command",
        "pause": "nodes:pause_command",
        "resume": "nodes:resume_command",
        "restart": "nodes:restart_command",
        "add": "nodes:add_command",
    },
    "brokers": {"list": "brokers:list_command"},
    "quorum": {"describe": "quorum:describe_command"},
    "elect-leaders": {"": "elect_leaders:elect_leaders_command"},
    "topics": {
        "create": "topics:create_command",
        "list": "topics:list_command",
        "describe": "topics:describe_command",
        "alter": "topics:alter_command",
        "delete": "topics:delete_command",
    },
    "groups": {
        "list": "groups:list_command",
        "describe": "groups:describe_command",
        "reset-offsets": "groups:reset_offsets_command",
        "delete": "groups:delete_command",
    },
    "produce": {"": "produce:produce_command"},
    "consume": {"": "consume:consume_command"},
    "pipeline": {
        "init": "pipeline.commands:init_command",
        "validate": "pipeline.commands:validate_command",
        "run": "pipeline.commands:run_command",
        "status": "pipeline.commands:status_command",
    },
    "sql": {"": "sql:sql_command"},
    "format": {"": "format:format_command"},
    "log": {"dump": "log:dump_command"},
}
# Those that start a node, and are called without typer where their words are plain (`options`).
QUICK = ("up", "start")
NOUNS = {
    "nodes": "The processes of a cluster that penstock up runs.",
    "brokers": "Brokers of a cluster.",
    "quorum": "The controllers of a cluster.",
    "topics": "Topics of a cluster.",
    "groups": "Consumer groups: members, lag, offsets.",
    "pipeline": "Data pipelines on Spark.",
    "log": "A look into the files of a log.",
}


def build(*words: str) -> typer.Typer:
    """The command line with these words, or with all of them."""
    import typer

    app = typer.Typer(
        name="penstock",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

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
            group.command(name or word)(for_typer(_command(where)))
    return app


def _command(where: str) -> Callable[..., None]:
    module, function = where.split(":")
    command: Callable[..., None] = getattr(import_module(f"{__name__}.{module}"), function)
    return command


def _noun() -> None:
    """Without it, typer would make a noun with one command that command itself."""


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in QUICK:
        command = _command(COMMANDS[word][""])
        arguments = plain_arguments(command, sys.argv[2:])
        if arguments is not None:
            return command(**arguments)
    build(*([word] if word in COMMANDS else []))()
    return None
