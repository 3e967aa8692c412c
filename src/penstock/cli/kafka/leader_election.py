"""kafka-leader-election.sh: elect preferred or unclean leaders."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.kafka.errors import java_text
from penstock.cli.kafka.options import Option, Options, Refused
from penstock.cli.kafka.session import with_admin
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client

_PURPOSE = (
    "This tool attempts to elect a new leader for a set of topic partitions. "
    "The type of elections supported are preferred replicas and unclean replicas."
)
_OPTIONS = {
    "bootstrap-server": Option("REQUIRED: Bootstrap brokers.", "String: host:port"),
    "admin.config": Option("Deprecated; use --command-config.", "String: config file"),
    "command-config": Option("A properties file for the client.", "String: config file"),
    "path-to-json-file": Option(
        'The partitions: {"partitions": [{"topic": "foo", "partition": 1}]}.',
        "String: Path to JSON file",
    ),
    "topic": Option("The topic; needs --partition.", "String: topic name"),
    "partition": Option("The partition of the topic.", "Integer: partition id"),
    "all-topic-partitions": Option("All partitions that need an election."),
    "election-type": Option('REQUIRED: "preferred" or "unclean".', "ElectionType: election type"),
}
_WHICH = ("topic", "all-topic-partitions", "path-to-json-file")


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(_OPTIONS, words, _PURPOSE)
        election, partitions = _parse(options)
        config = options.value("command-config") or options.value("admin.config")
        with_admin(
            options.value("bootstrap-server") or "",
            config,
            lambda client: _elect(client, election, partitions),
        )
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except KafkaError as error:
        if error.code is ErrorCode.REQUEST_TIMED_OUT:
            print("Timeout waiting for election results")
        print(java_text(error), file=sys.stderr)
        return 1
    return 0


def _parse(options: Options) -> tuple[str, list[TopicPartition] | None]:
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise Refused(f"Missing required option(s): {', '.join(missing)}")
    if sum(options.has(name) for name in _WHICH) != 1:
        raise Refused(f"One and only one of the following options is required: {', '.join(_WHICH)}")
    if options.has("topic") and not options.has("partition"):
        raise Refused("Missing required option(s): partition")
    if options.has("partition") and not options.has("topic"):
        raise Refused("Option partition is only allowed if topic is used")
    election = (options.value("election-type") or "").upper()
    if election not in ("PREFERRED", "UNCLEAN"):
        raise Refused(
            f"Cannot parse argument '{options.value('election-type')}' of option election-type"
        )
    file, topic = options.value("path-to-json-file"), options.value("topic")
    partition = options.number("partition")
    if file is not None:
        return election, _read(file)
    return election, None if topic is None or partition is None else [
        TopicPartition(topic, partition)
    ]


def _read(file: str) -> list[TopicPartition]:
    try:
        data = json.loads(Path(file).read_text())
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise Refused("Replica election data is empty") from error
    if not isinstance(data, dict) or "partitions" not in data:
        raise Refused('Replica election data is missing "partitions" field')
    try:
        partitions = [
            TopicPartition(str(row["topic"]), int(row["partition"])) for row in data["partitions"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"Replica election data has an invalid partition: {error!r}") from error
    duplicates = sorted(
        {str(partition) for partition in partitions if partitions.count(partition) > 1}
    )
    if duplicates:
        raise Refused(
            f"Replica election data contains duplicate partitions: [{', '.join(duplicates)}]"
        )
    return partitions


async def _elect(client: Client, election: str, partitions: list[TopicPartition] | None) -> None:
    from penstock.client.admin.admin_client import ElectionType

    results = sorted((await client.admin.elect_leaders(ElectionType[election], partitions)).items())
    elected = [str(partition) for partition, error in results if error is None]
    not_needed = [
        str(partition)
        for partition, error in results
        if error and error.code is ErrorCode.ELECTION_NOT_NEEDED
    ]
    failed = [
        (partition, error)
        for partition, error in results
        if error and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    ]
    if elected:
        print(
            f"Successfully completed leader election ({election}) for partitions "
            f"{', '.join(elected)}"
        )
    if not_needed:
        print(f"Valid replica already elected for partitions {', '.join(not_needed)}")
    for partition, error in failed:
        print(
            f"Error completing leader election ({election}) for partition: {partition}: "
            f"{java_text(error)}"
        )
    if failed:
        raise Refused(f"{len(failed)} replica(s) could not be elected")
