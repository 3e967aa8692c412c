"""kafka-metadata-quorum.sh: describe the controller quorum, add and remove controllers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Refused, argument_parser
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError
from penstock.ids import parse_uuid

if TYPE_CHECKING:
    from penstock.client.client import Client

T = TypeVar("T")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        for line in _COMMANDS[arguments.command](arguments):
            print(line)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        print(java_text(error), file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser(
        "kafka-metadata-quorum", "This tool describes kraft metadata quorum status."
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--bootstrap-server", help="Bootstrap brokers as host:port, separated by commas."
    )
    where.add_argument(
        "--bootstrap-controller", help="Bootstrap controllers as host:port, separated by commas."
    )
    parser.add_argument("--command-config", help="A properties file for the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Describe the metadata quorum info")
    describe.add_argument("--status", action="store_true", help="A short summary of the quorum.")
    describe.add_argument(
        "--replication", action="store_true", help="The replication state of each replica."
    )
    describe.add_argument(
        "--human-readable", action="store_true", help="Show times relative to now."
    )
    add = commands.add_parser(
        "add-controller", help="Add a controller to the KRaft controller cluster"
    )
    remove = commands.add_parser(
        "remove-controller", help="Remove a controller from the KRaft controller cluster"
    )
    remove.add_argument(
        "--controller-id", "-i", type=int, required=True, help="The id of the controller to remove."
    )
    remove.add_argument(
        "--controller-directory-id",
        "-d",
        required=True,
        help="The directory ID of the controller to remove.",
    )
    for command in (add, remove):
        command.add_argument(
            "--dry-run",
            action="store_true",
            help="True if we should print what would be done, but not do it.",
        )
    return parser


def _describe_lines(arguments: argparse.Namespace) -> list[str]:
    _check(arguments)
    return _with_admin(
        arguments, arguments.command_config, lambda client: _describe(client, arguments)
    )


def _with_admin(
    arguments: argparse.Namespace,
    config_file: str | None,
    work: Callable[[Client], Coroutine[Any, Any, T]],
) -> T:
    controllers = arguments.bootstrap_controller
    return with_admin(
        controllers or arguments.bootstrap_server,
        config_file,
        work,
        controllers=controllers is not None,
    )


def _add(arguments: argparse.Namespace) -> list[str]:
    """The file of --command-config is that of the controller, and may have the client's settings
    too, as in Kafka."""
    from penstock.cli.controller_file import ControllerFileError, read_controller
    from penstock.cli.quorum import added_line

    if arguments.command_config is None:
        raise Refused(
            "You must supply the configuration file of the controller you are adding when using "
            "add-controller."
        )
    try:
        controller = read_controller(arguments.command_config)
    except ControllerFileError as error:
        raise Refused(str(error)) from error

    async def work(client: Client) -> None:
        await client.admin.add_raft_voter(
            controller.id, controller.directory_id, controller.endpoints
        )

    if not arguments.dry_run:
        _with_admin(arguments, arguments.command_config, work)
    return [added_line(controller, dry_run=arguments.dry_run)]


def _remove(arguments: argparse.Namespace) -> list[str]:
    from penstock.cli.quorum import removed_line

    controller_id = arguments.controller_id
    if controller_id < 0:
        raise Refused(f"Invalid negative --controller-id: {controller_id}")
    try:
        directory_id = parse_uuid(arguments.controller_directory_id)
    except ValueError as error:
        raise Refused(f"Failed to parse --controller-directory-id: {error}") from error

    async def work(client: Client) -> None:
        await client.admin.remove_raft_voter(controller_id, directory_id)

    if not arguments.dry_run:
        _with_admin(arguments, arguments.command_config, work)
    return [removed_line(controller_id, directory_id, dry_run=arguments.dry_run)]


_COMMANDS = {"describe": _describe_lines, "add-controller": _add, "remove-controller": _remove}


def _check(arguments: argparse.Namespace) -> None:
    if arguments.status and arguments.replication:
        raise Refused(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not arguments.status and not arguments.replication:
        raise Refused(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if arguments.status and arguments.human_readable:
        raise Refused("The option --human-readable is only supported along with --replication")


async def _describe(client: Client, arguments: argparse.Namespace) -> list[str]:
    from penstock.cli.quorum import replication_lines, status_lines

    quorum = await client.admin.describe_quorum()
    if arguments.status:
        return status_lines((await client.admin.describe_cluster()).id, quorum)
    return replication_lines(
        quorum, client.cluster.world.clock.now_ms() if arguments.human_readable else None
    )
