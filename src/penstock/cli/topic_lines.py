"""Topics in the words of kafka-topics.sh --describe. Asks nobody, and prints nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from penstock.client.admin.configs import ConfigEntry, ConfigSource
from penstock.client.metadata import PartitionInfo, TopicInfo
from penstock.ids import NO_UUID, uuid_text

MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Shown:
    """Which partitions are shown: all of them, or those that one of the filters finds."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    # Only the headings, and only of topics with settings of their own.
    overrides: bool = False

    @property
    def filtered(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def has(self, one: PartitionInfo, min_isr: int, live: Collection[int]) -> bool:
        in_sync, led = len(one.isr), one.leader >= 0
        return (
            not self.filtered
            or (self.under_replicated and in_sync < len(one.replicas))
            or (self.unavailable and one.leader not in live)
            or (self.under_min_isr and (not led or in_sync < min_isr))
            or (self.at_min_isr and in_sync == min_isr)
        )


def topic_lines(
    topic: TopicInfo, configs: Sequence[ConfigEntry], live: Collection[int], shown: Shown
) -> Iterator[str]:
    own = [
        f"{one.name}={one.value or ''}"
        for one in _in_kafkas_order(configs)
        if one.source != ConfigSource.DEFAULT
    ]
    if not shown.filtered and (own or not shown.overrides):
        yield _heading(topic, own)
    if not shown.overrides:
        min_isr = next(
            (int(one.value or 1) for one in configs if one.name == MIN_IN_SYNC_REPLICAS), 1
        )
        yield from (_line(topic, one) for one in topic.partitions if shown.has(one, min_isr, live))


def _in_kafkas_order(configs: Sequence[ConfigEntry]) -> list[ConfigEntry]:
    """Kafka's tool keeps a topic's settings in a Java HashMap and prints them in its order, so that
    is what scripts compare with."""
    buckets = 16
    while len(configs) > buckets * 3 // 4:
        buckets *= 2
    return sorted(configs, key=lambda one: _java_hash(one.name) % buckets)


def _java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFF_FFFF
    return code ^ code >> 16


def _heading(topic: TopicInfo, own: list[str]) -> str:
    named = [f"TopicId: {uuid_text(topic.id)}"] if topic.id != NO_UUID else []
    factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    numbers = [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {factor}"]
    return "\t".join([f"Topic: {topic.name}", *named, *numbers, f"Configs: {','.join(own)}"])


def _line(topic: TopicInfo, one: PartitionInfo) -> str:
    fields = [
        f"Partition: {one.index}",
        f"Leader: {'none' if one.leader < 0 else one.leader}",
        f"Replicas: {_ids(one.replicas)}",
        f"Isr: {_ids(one.isr)}",
        f"Elr: {_ids(one.elr)}",
        f"LastKnownElr: {_ids(one.last_known_elr)}",
    ]
    return "\t".join(["", f"Topic: {topic.name}", *fields])


def _ids(ids: Sequence[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))
