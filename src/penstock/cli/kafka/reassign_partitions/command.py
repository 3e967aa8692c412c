"""The entry point of kafka-reassign-partitions.sh, with --list and --generate."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from secrets import randbits
from typing import TYPE_CHECKING

from penstock.cli.kafka.options import Options, Refused
from penstock.cli.kafka.reassign_partitions.arguments import OPTIONS, PURPOSE, parse_action
from penstock.cli.kafka.reassign_partitions.assignments import (
    Ongoing,
    current_log_dirs,
    ids_text,
    read_assignments,
)
from penstock.cli.kafka.reassign_partitions.execution import cancel, execute, verify
from penstock.cli.kafka.reassign_partitions.json_files import (
    ReassignmentError,
    duplicates,
    format_reassignment,
    parse_reassignment,
    parse_topics,
    read_text,
)
from penstock.cli.kafka.session import read_settings, with_settings
from penstock.errors import KafkaError
from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.metadata.image import BrokerImage


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """As in Kafka, errors go to stdout."""
    try:
        options = Options(OPTIONS, words, PURPOSE)
        action = parse_action(options)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    try:
        settings = {"client.id": "reassign-partitions-tool"}
        config = options.value("command-config")
        if config is not None:
            settings |= read_settings(config)
        controllers = options.value("bootstrap-controller")
        with_settings(
            controllers or options.value("bootstrap-server") or "",
            settings,
            lambda client: _run(client, action, options),
            controllers=controllers is not None,
        )
    except Refused as refused:
        print(refused)
        return 1
    except ReassignmentError as error:
        print(f"Error: {error}")
        return 1
    except KafkaError as error:
        print(f"Error: {error.message}")
        return 1
    return 0


async def _run(client: Client, action: str, options: Options) -> None:
    if action == "list":
        _print_ongoing(await client.admin.list_partition_reassignments())
    elif action == "generate":
        await _generate(
            client,
            read_text(options.value("topics-to-move-json-file") or ""),
            options.value("broker-list") or "",
            rack_aware=not options.has("disable-rack-aware"),
        )
    else:
        file = parse_reassignment(read_text(options.value("reassignment-json-file") or ""))
        if action == "verify":
            await verify(client, file, preserve_throttles=options.has("preserve-throttles"))
        elif action == "cancel":
            await cancel(client, file, options)
        else:
            await execute(client, file, options)


def _print_ongoing(ongoing: Ongoing) -> None:
    if not ongoing:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, reassignment in sorted(ongoing.items()):
        adding = f" adding: {ids_text(reassignment.adding)}." if reassignment.adding else ""
        removing = f" removing: {ids_text(reassignment.removing)}." if reassignment.removing else ""
        print(f"{partition}: replicas: {ids_text(reassignment.replicas)}.{adding}{removing}")


# --generate


async def _generate(client: Client, text: str, broker_list: str, *, rack_aware: bool) -> None:
    """Print the current assignment of the topics, and one on the listed brokers."""
    from penstock.controller.topics.replica_placer import place_replicas

    brokers = [_broker_id(word) for word in broker_list.split(",")]
    twice = duplicates(brokers)
    if twice:
        raise ReassignmentError(
            f"Broker list contains duplicate entries: [{', '.join(map(str, twice))}]"
        )
    topics = parse_topics(text)
    current = await read_assignments(client, topics)
    usable = await _usable_brokers(client, brokers, rack_aware=rack_aware)
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in sorted(topics):
        counts = [
            len(replicas) for name, replicas in sorted(current.items()) if name.topic == topic
        ]
        placed = place_replicas(usable, len(counts), counts[0], randbits(64))
        proposed |= {TopicPartition(topic, index): ids for index, ids in enumerate(placed)}
    print(
        f"Current partition replica assignment\n"
        f"{format_reassignment(current, await current_log_dirs(client, current))}\n"
    )
    print(f"Proposed partition reassignment configuration\n{format_reassignment(proposed, {})}")


def _broker_id(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ReassignmentError(f'For input string: "{word}"') from None


async def _usable_brokers(
    client: Client, ids: Collection[int], *, rack_aware: bool
) -> list[BrokerImage]:
    from penstock.ids import NO_UUID
    from penstock.metadata.image import BrokerImage

    live = [
        broker for broker in (await client.admin.describe_cluster()).brokers if broker.id in ids
    ]
    without = sum(broker.rack is None for broker in live)
    if rack_aware and 0 < without < len(live):
        raise ReassignmentError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    return [
        BrokerImage(
            id=broker.id,
            epoch=0,
            incarnation_id=NO_UUID,
            rack=broker.rack if rack_aware else None,
            fenced=False,
        )
        for broker in live
    ]
