"""Dividing topics among the members of a group, as Kafka's range assignor does. PURE."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.ids import TopicPartition


def assign_ranges(
    subscriptions: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each topic's partitions in order, in pieces as equal as can be, to the members that subscribe
    to it, in the order of their ids."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted(
        {topic for topics in subscriptions.values() for topic in topics} & counts.keys()
    ):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(counts[topic], len(members))
        begin = 0
        for number, member in enumerate(members):
            end = begin + each + (number < more)
            assigned[member] += [TopicPartition(topic, index) for index in range(begin, end)]
            begin = end
    return assigned
