"""The offset of the streaming source, and the cluster's offsets at one point in time. Pure.

Spark writes a source offset to the checkpoint as JSON. Its form is that of Spark's own Kafka
connector with topic ids added, so a checkpoint of that connector can be resumed:

    {"orders": {"0": 12, "1": 9, "id": "UyDk4xg0RUWyVZ7Gx7Q7Fg"}}

Topic ids (KIP-516) reveal a topic that was deleted and created again.

Spark does not store the initial offset of a query and calls `initialOffset` again when it repeats
the first batch. The end offset of the first batch therefore carries its start, under a key that is
not a valid topic name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from penstock.ids import NO_UUID, TopicPartition, parse_uuid, uuid_text
from penstock.spark.options.values import MAX_INT64

# Keys beside the topics; "#" is not allowed in topic names.
INITIAL_KEY = "#initial"
FIRST_BATCH_START_KEY = "#began"
LAG_KEY = "#lag"
METRICS_KEY = "#metrics"
_OTHER_KEYS = (INITIAL_KEY, FIRST_BATCH_START_KEY, LAG_KEY, METRICS_KEY)
_TOPIC_ID_KEY = "id"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """An offset per partition, exclusive where it ends a batch. `initial` marks the offset at which
    a query starts; `first_batch_start` is that offset in the end of the first batch."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    initial: bool = False
    first_batch_start: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = _by_topic(self.offsets)
        for topic, numbers in value.items():
            if self.topic_id(topic) != NO_UUID:
                numbers[_TOPIC_ID_KEY] = uuid_text(self.topic_ids[topic])
        if self.initial:
            value[INITIAL_KEY] = True
        if self.first_batch_start is not None:
            value[FIRST_BATCH_START_KEY] = _by_topic(self.first_batch_start)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceOffset:
        """ValueError if neither this source nor Spark's connector can have written the value."""
        topics = {topic: numbers for topic, numbers in value.items() if topic not in _OTHER_KEYS}
        try:
            topic_ids = {
                topic: parse_uuid(numbers[_TOPIC_ID_KEY])
                for topic, numbers in topics.items()
                if _TOPIC_ID_KEY in numbers
            }
            first_batch_start = (
                _by_partition(value[FIRST_BATCH_START_KEY])
                if FIRST_BATCH_START_KEY in value
                else None
            )
            initial = bool(value.get(INITIAL_KEY))
            return cls(_by_partition(topics), topic_ids, initial, first_batch_start)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"the offsets in the checkpoint are invalid ({error}). Does the checkpoint belong "
                "to another source?"
            ) from error

    def topic_id(self, topic: str) -> UUID:
        return self.topic_ids.get(topic, NO_UUID)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The earliest and latest offset of every subscribed partition at one point in time."""

    topic_ids: Mapping[str, UUID]
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]

    def recreated(self, known: SourceOffset, topic: str) -> bool:
        """Return True if the topic has another id than in `known`. Brokers before KIP-516 report
        no topic ids."""
        before, after = known.topic_id(topic), self.topic_ids.get(topic, NO_UUID)
        return before != after and NO_UUID not in (before, after)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def _by_partition(topics: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, numbers in topics.items():
        for key, offset in numbers.items():
            if key == _TOPIC_ID_KEY:
                continue
            if not key.isdecimal() or type(offset) is not int or not 0 <= offset <= MAX_INT64:
                raise ValueError(f"{topic}: partition {key!r} with offset {offset!r}")
            offsets[TopicPartition(topic, int(key))] = offset
    return offsets
