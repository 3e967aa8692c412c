"""The arguments of kafka-transactions.sh."""

from __future__ import annotations

import argparse

from penstock.cli.kafka.options import KAFKA_VERSION, Refused, argument_parser

_PURPOSE = (
    "This tool is used to analyze the transactional state of producers in the cluster. It can be "
    "used to detect and recover from hanging transactions."
)
_DEFAULT_TIMEOUT_MIN = 15


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root = argument_parser("kafka-transactions.sh", _PURPOSE)
    root.add_argument(
        "-v", "--version", action="version", version=KAFKA_VERSION, help="Display Kafka version."
    )
    root.add_argument("--command-config", metavar="FILE", help="A properties file for the client.")
    root.add_argument(
        "--bootstrap-server", metavar="host:port", required=True, help="Bootstrap brokers."
    )
    commands = root.add_subparsers(
        dest="command", required=True, title="commands", metavar="COMMAND"
    )
    listing = commands.add_parser("list", help="list transactions")
    listing.add_argument(
        "--duration-filter", type=int, default=-1, help="Only transactions open for longer, in ms."
    )
    listing.add_argument(
        "--transactional-id-pattern", help="A regular expression of the transactional ids."
    )
    describe = commands.add_parser(
        "describe", help="describe the state of an active transactional-id"
    )
    describe.add_argument("--transactional-id", required=True, help="transactional id")
    producers = commands.add_parser(
        "describe-producers", help="describe the states of active producers for a topic partition"
    )
    producers.add_argument("--broker-id", type=int, help="Ask this replica instead of the leader.")
    producers.add_argument("--topic", required=True, help="topic name")
    producers.add_argument("--partition", type=int, required=True, help="partition number")
    _add_abort(commands.add_parser("abort", help="abort a hanging transaction"))
    hanging = commands.add_parser("find-hanging", help="find hanging transactions")
    hanging.add_argument("--broker-id", type=int, help="Search the replicas of this broker.")
    hanging.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=_DEFAULT_TIMEOUT_MIN,
        help="Only transactions without a write for this many minutes; 15 by default.",
    )
    hanging.add_argument("--topic", help="The topic to search; required with --partition.")
    hanging.add_argument("--partition", type=int, help="partition number")
    terminate = commands.add_parser(
        "forceTerminateTransaction", help="Force abort an ongoing transaction on transactionalId"
    )
    terminate.add_argument(
        "--transactionalId", dest="transactional_id", required=True, help="transactional id"
    )
    return root


def _add_abort(abort: argparse.ArgumentParser) -> None:
    abort.add_argument("--topic", required=True, help="topic name")
    abort.add_argument("--partition", type=int, required=True, help="partition number")
    newer = abort.add_argument_group("Brokers on versions 3.0 and above")
    newer.add_argument("--start-offset", type=int, help="start offset of the transaction to abort")
    older = abort.add_argument_group("Brokers on versions older than 3.0")
    older.add_argument("--producer-id", type=int, help="producer id")
    older.add_argument("--producer-epoch", type=int, help="producer epoch")
    older.add_argument("--coordinator-epoch", type=int, help="coordinator epoch")


def check(arguments: argparse.Namespace) -> None:
    """Refuse combinations of arguments that argparse accepts."""
    if arguments.command == "abort" and arguments.start_offset is None:
        if arguments.producer_id is None:
            raise Refused(
                "The transaction to abort must be identified either with --start-offset (for "
                "brokers on 3.0 or above) or with --producer-id, --producer-epoch, and "
                "--coordinator-epoch (for older brokers)"
            )
        if arguments.producer_epoch is None:
            raise Refused("Missing required argument --producer-epoch")
        if arguments.coordinator_epoch is None:
            raise Refused("Missing required argument --coordinator-epoch")
    if arguments.command == "find-hanging":
        if arguments.topic is None and arguments.broker_id is None:
            raise Refused(
                "The `find-hanging` command requires either --topic or --broker-id to limit the "
                "scope of the search"
            )
        if arguments.partition is not None and arguments.topic is None:
            raise Refused("The --partition argument requires --topic to be provided")
