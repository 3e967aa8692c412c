"""The command line, with one module per noun, imported when its command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.cli.options import for_typer, plain_arguments

if TYPE_CHECKING:
    import typer

# Command -> subcommand ("" for a command without one) -> function, as module:name.
COMMANDS: dict[str, dict[str, str]] = {
    "up": {"": "cluster.up:up_command"},
    "start": {"": "cluster.up:start_command"},
    "nodes": {
        "list": "cluster.nodes:list_command",
        "kill": "cluster.nodes:kill_command",
        "pause": "cluster.nodes:pause_command",
        "resume": "cluster.nodes:resume_command",
        "restart": "cluster.nodes:restart_command",
        "add": "cluster.nodes:add_command",
    },
    "brokers": {
        "list": "brokers:list_command",
        "drain": "brokers:drain_command",
        "undrain": "brokers:undrain_command",
        "remove": "brokers:remove_command",
    },
    "rebalance": {"": "rebalance:rebalance_command"},
    "quorum": {
        "describe": "quorum:describe_command",
        "add": "quorum:add_command",
        "remove": "quorum:remove_command",
    },
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
    "acls": {
        "list": "acls:list_command",
        "create": "acls:create_command",
        "delete": "acls:delete_command",
    },
    "quotas": {
        "list": "quotas:list_command",
        "set": "quotas:set_command",
        "remove": "quotas:remove_command",
    },
    "users": {
        "list": "users:list_command",
        "set": "users:set_command",
        "remove": "users:remove_command",
    },
    "transactions": {
        "list": "transactions:list_command",
        "describe": "transactions:describe_command",
        "abort": "transactions:abort_command",
        "end": "transactions:end_command",
        "find-hanging": "transactions:find_hanging_command",
    },
    "doctor": {"": "doctor.command:doctor_command"},
    "top": {"": "top.command:top_command"},
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
    "profile": {
        "add": "profiles:add_command",
        "use": "profiles:use_command",
        "list": "profiles:list_command",
        "remove": "profiles:remove_command",
    },
}
# Commands that start a node; they are parsed without typer if possible (`options`).
FAST_COMMANDS = ("up", "start")
NOUNS = {
    "nodes": "Control the node processes of penstock up.",
    "brokers": "List, drain and remove brokers.",
    "quorum": "Describe and change the controller quorum.",
    "topics": "Create, describe, alter and delete topics.",
    "groups": "Describe consumer groups, their lag and offsets.",
    "acls": "List, create and delete access control entries.",
    "quotas": "List, set and remove quotas of users, clients and addresses.",
    "users": "List, set and remove the SCRAM credentials of users.",
    "transactions": "List, describe, end and abort transactions.",
    "pipeline": "Run data pipelines on Spark.",
    "log": "Inspect the files of a log.",
    "profile": "Name clusters, and choose the one that commands connect to.",
}


def build(*words: str) -> typer.Typer:
    """Build the command line with these commands, or with all."""
    import typer

    from penstock.cli.examples import EXIT_CODES, epilog

    app = typer.Typer(
        name="penstock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(epilog=EXIT_CODES)
    def penstock() -> None:
        """Event streaming platform that speaks Kafka's protocol."""

    for word in words or COMMANDS:
        group = app
        if word in NOUNS:
            group = typer.Typer(help=NOUNS[word], no_args_is_help=True)
            group.callback()(_noun)
            app.add_typer(group, name=word)
        for name, path in COMMANDS[word].items():
            examples = epilog(f"{word} {name}".strip())
            group.command(name or word, epilog=examples)(for_typer(_load_command(path)))
    return app


def _load_command(path: str) -> Callable[..., None]:
    module, function = path.split(":")
    command: Callable[..., None] = getattr(import_module(f"{__name__}.{module}"), function)
    return command


def _noun() -> None:
    """Without a callback, typer would replace a noun with a single command by that command."""


def _completed_command() -> str:
    """Return the command whose arguments a shell completes, so that only its module is imported."""
    if "_PENSTOCK_COMPLETE" not in os.environ:
        return ""
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    # The last word may be incomplete.
    given = words.split()[1:2] if len(words.split()) > 2 or words.endswith(" ") else []
    return "".join(word for word in given if word not in FAST_COMMANDS)


def main() -> None:
    word = _completed_command() or (sys.argv[1] if len(sys.argv) > 1 else "")
    if word in FAST_COMMANDS:
        command = _load_command(COMMANDS[word][""])
        arguments = plain_arguments(command, sys.argv[2:])
        if arguments is not None:
            return command(**arguments)
    build(*([word] if word in COMMANDS else []))()
    return None
