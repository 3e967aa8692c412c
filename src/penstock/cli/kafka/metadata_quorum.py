"""kafka-metadata-quorum.sh: describes the quorum of controllers. Penstock's is fixed so far: nobody
can be added or removed."""

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
    asked = _parser().parse_args(words)
    try:
        if asked.command != "describe":
            raise Refused(
                f"{asked.command} cannot be done: Penstock's quorum is fixed by "
                "controller.quorum.voters"
            )
        if asked.bootstrap_server is None:
            raise Refused(
                "--bootstrap-controller cannot be used: name brokers with --bootstrap-server, who "
                "ask the controllers"
            )
        _check(asked)
        for line in with_admin(
            asked.bootstrap_server, asked.command_config, lambda client: _describe(client, asked)
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
        "--bootstrap-server", help="Brokers to begin with, as host:port, separated by commas."
    )
    where.add_argument(
        "--bootstrap-controller", help="Controllers to begin with; not there in Penstock."
    )
    parser.add_argument("--command-config", help="A file with settings of the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Describe the metadata quorum info")
    describe.add_argument("--status", action="store_true", help="A short summary of the quorum.")
    describe.add_argument(
        "--replication", action="store_true", help="How far each of its replicas has come."
    )
    describe.add_argument(
        "--human-readable", action="store_true", help="Times as how long ago they were."
    )
    for name in ("add-controller", "remove-controller"):
        commands.add_parser(name, help="Not there in Penstock, whose quorum is fixed.")
    return parser


def _check(asked: argparse.Namespace) -> None:
    if asked.status and asked.replication:
        raise Refused(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not asked.status and not asked.replication:
        raise Refused(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if asked.status and asked.human_readable:
        raise Refused("The option --human-readable is only supported along with --replication")


async def _describe(client: Client, asked: argparse.Namespace) -> list[str]:
    from penstock.cli.quorum_lines import replication_lines, status_lines

    quorum = await client.admin.describe_quorum()
    if asked.status:
        return status_lines((await client.admin.describe_cluster()).id, quorum)
    return replication_lines(
        quorum, client.cluster.world.clock.now_ms() if asked.human_readable else None
    )
