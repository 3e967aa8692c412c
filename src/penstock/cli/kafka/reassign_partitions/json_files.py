"""The JSON files of kafka-reassign-partitions.sh: topics to move, and reassignments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.ids import TopicPartition

ANY_LOG_DIR = "any"
_VERSION = 1


class ReassignmentError(Exception):
    """Kafka's tool prints the message after `Error: `."""


class Replica(NamedTuple):
    """A replica, in the order in which Kafka's tool lists them."""

    broker: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The partitions of a file in its order, which may have duplicates, and the log directories
    that it names."""

    partitions: list[tuple[TopicPartition, list[int]]]
    log_dirs: dict[Replica, str]

    def checked(self) -> dict[TopicPartition, list[int]]:
        """Return the replicas of each partition. Raises ReassignmentError if --execute refuses
        them."""
        if not self.partitions:
            raise ReassignmentError("Partition reassignment list cannot be empty")
        if not all(replicas for _partition, replicas in self.partitions):
            raise ReassignmentError("Partition replica list cannot be empty")
        twice = duplicates(partition for partition, _replicas in self.partitions)
        if twice:
            raise ReassignmentError(
                "Partition reassignment contains duplicate topic partitions: "
                f"{','.join(map(str, twice))}"
            )
        repeated = [
            f"{partition} contains multiple entries for {','.join(map(str, duplicates(replicas)))}"
            for partition, replicas in self.partitions
            if duplicates(replicas)
        ]
        if repeated:
            raise ReassignmentError(
                f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}"
            )
        return dict(self.partitions)


def duplicates(items: Iterable[Any]) -> list[Any]:
    """Return what occurs more than once, each once."""
    seen: set[Any] = set()
    found: dict[Any, None] = {}
    for item in items:
        if item in seen:
            found[item] = None
        seen.add(item)
    return list(found)


def read_text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise ReassignmentError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ReassignmentError(f"{file} is not UTF-8") from error


def parse_topics(text: str) -> list[str]:
    """Parse {"topics": [{"topic": "foo"}], "version": 1}."""
    data = _parse(text)
    topics = [str(_field(entry, "topic", str)) for entry in _list(data, "topics")]
    twice = duplicates(topics)
    if twice:
        raise ReassignmentError(
            f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]"
        )
    return topics


def parse_reassignment(text: str) -> Reassignment:
    """Parse {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2], "log_dirs":
    ["any", "/data"]}], "version": 1}."""
    partitions: list[tuple[TopicPartition, list[int]]] = []
    log_dirs: dict[Replica, str] = {}
    for entry in _list(_parse(text), "partitions"):
        partition = TopicPartition(_field(entry, "topic", str), _field(entry, "partition", int))
        replicas = _typed_list(_field(entry, "replicas", list), int)
        paths = (
            _typed_list(entry["log_dirs"], str)
            if "log_dirs" in entry
            else [ANY_LOG_DIR] * len(replicas)
        )
        if len(paths) != len(replicas):
            raise ReassignmentError(
                f"Size of replicas list [{', '.join(map(str, replicas))}] is different from size "
                f"of log dirs list [{', '.join(paths)}] for partition {partition}"
            )
        partitions.append((partition, replicas))
        for broker, path in zip(replicas, paths, strict=True):
            if path != ANY_LOG_DIR:
                log_dirs[Replica(broker, partition)] = path
    return Reassignment(partitions, log_dirs)


def format_reassignment(
    partitions: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[Replica, str]
) -> str:
    return json.dumps(
        {
            "version": _VERSION,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(replicas),
                    "log_dirs": [
                        log_dirs.get(Replica(broker, partition), ANY_LOG_DIR) for broker in replicas
                    ],
                }
                for partition, replicas in sorted(partitions.items())
            ],
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def _parse(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ReassignmentError("The input string is not a valid JSON") from error
    if not isinstance(data, dict):
        raise ReassignmentError(f"Expected JSON object, received {text.strip()[:80]}")
    version = data.get("version", _VERSION)
    if version != _VERSION:
        raise ReassignmentError(f"Not supported version field value {version}")
    return data


def _list(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return _typed_list(data.get(name, []), dict)


def _field(entry: dict[str, Any], name: str, kind: type[Any]) -> Any:
    if name not in entry:
        raise ReassignmentError(f"No such field exists: `{name}`")
    return _typed_list([entry[name]], kind)[0]


def _typed_list(values: Any, kind: type[Any]) -> list[Any]:
    if not isinstance(values, list):
        raise ReassignmentError(f"Expected JSON array, received {json.dumps(values)[:80]}")
    for value in values:
        # A boolean is an integer in Python, but not in JSON.
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ReassignmentError(
                f"Expected `{kind.__name__}` value, received {json.dumps(value)[:80]}"
            )
    return values
