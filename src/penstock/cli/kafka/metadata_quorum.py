"""kafka-metadata-quorum.sh: describe the controller quorum.

Penstock's quorum is static: controllers cannot be added or removed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Refused, argument_parser
from penstock.cli.kafka.session import with_admin
from penstock.errors import KafkaError

if TYPE_CHECKING:
    from penstock.client.client import Client


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        if arguments.command != "describe":
            raise Refused(
                f"{arguments.command} is not supported: Penstock's quorum is fixed by "
                "controller.quorum.voters"
            )
        if arguments.bootstrap_server is None:
            raise Refused(
                "--bootstrap-controller is not supported: give brokers with --bootstrap-server"
            )
        _check(arguments)
        for line in with_admin(
            arguments.bootstrap_server,
            arguments.command_config,
            lambda client: _describe(client, arguments),
        ):
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
        "--bootstrap-controller", help="Bootstrap controllers; not supported by Penstock."
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
    for name in ("add-controller", "remove-controller"):
        commands.add_parser(name, help="Not supported by Penstock, whose quorum is static.")
    return parser


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
