"""kafka-storage.sh: format a node's log directories, and show their state."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from penstock.cli.kafka.options import argument_parser
from penstock.config.meta_properties import META_PROPERTIES, MetaProperties, decode_meta_properties
from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.config.properties import PropertiesError
from penstock.ids import uuid_text
from penstock.node.broker.formatting import FormatError, format_directories, scram_credentials
from penstock.node.quorum.initial_voters import InitialVotersError, choose_initial_voters
from penstock.world.real import RealDisk, RealRng

METADATA_VERSION = "4.3-IV0"
_UNSUPPORTED = {
    "feature": "--feature is not supported: Penstock's feature levels are those of its release",
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    if arguments.command == "random-uuid":
        print(_random_uuid())
        return 0
    try:
        node = read_node_config(RealDisk().read(arguments.config), arguments.config)
        return _info(node) if arguments.command == "info" else _format(node, arguments)
    except ConfigError as error:
        reason = "\n".join(error.problems)
    except (FormatError, InitialVotersError) as error:
        reason = str(error)
    except OSError as error:
        reason = f"{error.filename or arguments.config}: {error.strerror or error}"
    print(reason, file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argument_parser("kafka-storage", "The Kafka storage tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser(
        "info", help="Get information about the Kafka log directories on this node."
    )
    form = commands.add_parser("format", help="Format the Kafka log directories on this node.")
    commands.add_parser("random-uuid", help="Print a random UUID.")
    for command in (info, form):
        command.add_argument("--config", "-c", required=True, help="The node's server.properties.")
    form.add_argument("--cluster-id", "-t", required=True, help="The id of the cluster.")
    form.add_argument(
        "--add-scram",
        "-S",
        action="append",
        help="A SCRAM_CREDENTIAL to add to the __cluster_metadata log, as "
        "'SCRAM-SHA-256=[name=alice,password=alice-secret]'.",
    )
    form.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="Skip directories that are already formatted.",
    )
    form.add_argument("--release-version", "-r", help=f"Only {METADATA_VERSION}.")
    form.add_argument("--feature", "-f", action="append", help="Not supported by Penstock yet.")
    quorum = form.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone", "-s", action="store_true", help="Make this controller the only voter."
    )
    quorum.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="Format without specifying a dynamic quorum: the controller joins one that exists.",
    )
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        help="The initial controllers, as a comma-separated list of id@hostname:port:directory. "
        "The same values must be used to format all of them.",
    )
    return parser


def _format(node: NodeConfig, arguments: argparse.Namespace) -> int:
    for name, reason in _UNSUPPORTED.items():
        if getattr(arguments, name):
            raise FormatError(reason)
    if arguments.release_version not in (
        None,
        METADATA_VERSION,
        METADATA_VERSION.partition("-")[0],
    ):
        raise FormatError(
            f"--release-version {arguments.release_version} is not supported: this release formats "
            f"as {METADATA_VERSION}"
        )
    quorum = choose_initial_voters(
        node,
        standalone=arguments.standalone,
        initial_controllers=arguments.initial_controllers,
        none=arguments.no_initial_controllers,
    )

    def say(line: str) -> None:
        print(
            line.replace(
                f"with cluster.id {arguments.cluster_id}.",
                f"with metadata.version {METADATA_VERSION}.",
            )
        )

    rng = RealRng()
    format_directories(
        RealDisk(),
        rng,
        node,
        arguments.cluster_id,
        ignore_formatted=arguments.ignore_formatted,
        say=say,
        quorum=quorum,
        credentials=scram_credentials(arguments.add_scram or (), rng),
    )
    return 0


def _info(node: NodeConfig) -> int:
    disk = RealDisk()
    directories: list[str] = []
    metas: list[MetaProperties] = []
    problems: list[str] = []
    for directory in sorted(node.directories):
        if not disk.exists(directory):
            problems.append(f"{directory} does not exist")
            continue
        directories.append(directory)
        file = f"{directory}/{META_PROPERTIES}"
        if not disk.exists(file):
            problems.append(f"{directory} is not formatted.")
            continue
        try:
            metas.append(decode_meta_properties(disk.read(file), file))
        except PropertiesError as error:
            problems.append(f"Error loading {file}: {error}")
    if len({meta.cluster_id for meta in metas}) > 1:
        problems.append("Mismatched cluster IDs between storage directories.")
    elif len({meta.node_id for meta in metas}) > 1:
        problems.append("Mismatched node IDs between storage directories.")
    if directories:
        _section(
            "Found log directory:" if len(directories) == 1 else "Found log directories:",
            directories,
        )
    if metas:
        print(f"Found metadata: {_text(metas[0])}\n")
    if problems:
        _section("Found problem:" if len(problems) == 1 else "Found problems:", problems)
    return 1 if problems else 0


def _section(heading: str, lines: list[str]) -> None:
    print(heading, *(f"  {line}" for line in lines), "", sep="\n")


def _text(meta: MetaProperties) -> str:
    directory = {} if meta.directory_id is None else {"directory.id": uuid_text(meta.directory_id)}
    values = {"cluster.id": meta.cluster_id, **directory, "node.id": meta.node_id, "version": 1}
    return "{" + ", ".join(f"{name}={value}" for name, value in values.items()) + "}"


def _random_uuid() -> str:
    """Return a random UUID that does not start with a dash, as Kafka's tool does, so that it can
    be given as an argument."""
    rng = RealRng()
    while (text := uuid_text(rng.uuid())).startswith("-"):
        continue
    return text
