"""The settings that a group can have of its own (KIP-848), each with the broker settings that give
its default and its bounds.

Knows consumer groups' alone: Penstock has no share or streams groups, so what Kafka has for those
is not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.config import group_settings as group
from penstock.config.setting import Setting


@dataclass(frozen=True, slots=True)
class GroupSetting:
    setting: Setting[int]
    default: Setting[int]
    least: Setting[int]
    most: Setting[int]


def _like(
    name: str, default: Setting[int], least: Setting[int], most: Setting[int]
) -> GroupSetting:
    """Of the same type as the setting that is its default, and takes the same values."""
    return GroupSetting(
        Setting(
            name, default.type, default.default, default.importance, default.doc, default.valid
        ),
        default,
        least,
        most,
    )


HEARTBEAT_INTERVAL_MS = _like(
    "consumer.heartbeat.interval.ms",
    group.CONSUMER_HEARTBEAT_INTERVAL_MS,
    group.CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    group.CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
)
SESSION_TIMEOUT_MS = _like(
    "consumer.session.timeout.ms",
    group.CONSUMER_SESSION_TIMEOUT_MS,
    group.CONSUMER_MIN_SESSION_TIMEOUT_MS,
    group.CONSUMER_MAX_SESSION_TIMEOUT_MS,
)
ASSIGNMENT_INTERVAL_MS = _like(
    "consumer.assignment.interval.ms",
    group.CONSUMER_ASSIGNMENT_INTERVAL_MS,
    group.CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    group.CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
)

# In the order in which Kafka checks them.
GROUP_SETTINGS: Mapping[str, GroupSetting] = MappingProxyType(
    {
        one.setting.name: one
        for one in (HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, ASSIGNMENT_INTERVAL_MS)
    }
)
