"""Settings of brokers for groups and the offsets topic, and the settings of groups themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import IgnoringCase, at_least

INT, SHORT, LONG, STRING, LIST = (
    SettingType.INT,
    SettingType.SHORT,
    SettingType.LONG,
    SettingType.STRING,
    SettingType.LIST,
)
HIGH, MEDIUM = Importance.HIGH, Importance.MEDIUM

_MAX_INT = 2**31 - 1

# Classic groups.
GROUP_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.min.session.timeout.ms",
    INT,
    6_000,
    MEDIUM,
    "The minimum session timeout of members of classic groups.",
)
GROUP_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.max.session.timeout.ms",
    INT,
    1_800_000,
    MEDIUM,
    "The maximum session timeout of members of classic groups.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS = Setting(
    "group.initial.rebalance.delay.ms",
    INT,
    3_000,
    MEDIUM,
    "The time that the coordinator waits for more members to join a new classic group "
    "before the first rebalance.",
)
GROUP_MAX_SIZE = Setting(
    "group.max.size",
    INT,
    _MAX_INT,
    MEDIUM,
    "The maximum number of members in a classic group.",
    at_least(1),
)

# Consumer groups (KIP-848).
CONSUMER_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    MEDIUM,
    "The time without heartbeats after which a member is removed from a consumer group.",
    at_least(1),
)
CONSUMER_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.min.session.timeout.ms",
    INT,
    45_000,
    MEDIUM,
    "The minimum session timeout of consumer groups.",
    at_least(1),
)
CONSUMER_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.max.session.timeout.ms",
    INT,
    60_000,
    MEDIUM,
    "The maximum session timeout of consumer groups.",
    at_least(1),
)
CONSUMER_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.heartbeat.interval.ms",
    INT,
    5_000,
    MEDIUM,
    "The heartbeat interval of members of consumer groups.",
    at_least(1),
)
CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    5_000,
    MEDIUM,
    "The minimum heartbeat interval of consumer groups.",
    at_least(1),
)
CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    15_000,
    MEDIUM,
    "The maximum heartbeat interval of consumer groups.",
    at_least(1),
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.assignment.interval.ms",
    INT,
    1_000,
    MEDIUM,
    "The minimum time between two assignments of a consumer group.",
    at_least(0),
    Dynamic.CLUSTER_WIDE,
)
CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.min.assignment.interval.ms",
    INT,
    0,
    MEDIUM,
    "The minimum assignment interval of consumer groups.",
    at_least(0),
)
CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.max.assignment.interval.ms",
    INT,
    15_000,
    MEDIUM,
    "The maximum assignment interval of consumer groups.",
    at_least(0),
)
CONSUMER_MAX_SIZE = Setting(
    "group.consumer.max.size",
    INT,
    _MAX_INT,
    MEDIUM,
    "The maximum number of members in a consumer group.",
    at_least(1),
)
CONSUMER_ASSIGNORS = Setting[tuple[str, ...]](
    "group.consumer.assignors",
    LIST,
    ("uniform", "range"),
    MEDIUM,
    "The server-side assignors of consumer groups. The first is the default.",
)
CONSUMER_MIGRATION_POLICY = Setting(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    MEDIUM,
    "The conversions between the classic and the consumer protocol that live groups may make.",
    IgnoringCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")),
)

# Offsets and the offsets topic.
OFFSET_METADATA_MAX_BYTES = Setting(
    "offset.metadata.max.bytes",
    INT,
    4_096,
    HIGH,
    "The maximum size of the metadata of an offset commit.",
)
OFFSETS_COMMIT_TIMEOUT_MS = Setting(
    "offsets.commit.timeout.ms",
    INT,
    5_000,
    HIGH,
    "The maximum time that a coordinator waits until its records are committed.",
    at_least(1),
)
OFFSETS_LOAD_BUFFER_SIZE = Setting(
    "offsets.load.buffer.size",
    INT,
    5 * 1024 * 1024,
    HIGH,
    "No effect in Penstock: a coordinator loads its partitions in small batches.",
    at_least(1),
)
OFFSETS_RETENTION_MINUTES = Setting(
    "offsets.retention.minutes",
    INT,
    10_080,
    HIGH,
    "The time after which the offsets of a group without members expire.",
    at_least(1),
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Setting(
    "offsets.retention.check.interval.ms",
    LONG,
    600_000,
    HIGH,
    "The frequency with which coordinators check for expired offsets.",
    at_least(1),
)
OFFSETS_TOPIC_COMPRESSION_CODEC = Setting(
    "offsets.topic.compression.codec",
    INT,
    0,
    HIGH,
    "The compression codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
)
OFFSETS_TOPIC_NUM_PARTITIONS = Setting(
    "offsets.topic.num.partitions",
    INT,
    50,
    HIGH,
    "The number of partitions of the offsets topic. It must not change after deployment.",
    at_least(1),
)
OFFSETS_TOPIC_REPLICATION_FACTOR = Setting(
    "offsets.topic.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the offsets topic.",
    at_least(1),
)
OFFSETS_TOPIC_SEGMENT_BYTES = Setting(
    "offsets.topic.segment.bytes",
    INT,
    100 * 1024 * 1024,
    HIGH,
    (
        "The segment.bytes of the offsets topic. Small segments are compacted sooner, and so "
        "load faster."
    ),
    at_least(1),
)


# Settings of groups


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A setting of a group (KIP-848), with the broker settings that are its default and bounds."""

    setting: Setting[int]
    default: Setting[int]
    least: Setting[int]
    most: Setting[int]


def _like(
    name: str, default: Setting[int], least: Setting[int], most: Setting[int]
) -> GroupSetting:
    """Return a group setting with the type, documentation and valid values of its default."""
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
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
)
SESSION_TIMEOUT_MS = _like(
    "consumer.session.timeout.ms",
    CONSUMER_SESSION_TIMEOUT_MS,
    CONSUMER_MIN_SESSION_TIMEOUT_MS,
    CONSUMER_MAX_SESSION_TIMEOUT_MS,
)
ASSIGNMENT_INTERVAL_MS = _like(
    "consumer.assignment.interval.ms",
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
)

# In the order of Kafka's checks. Penstock has no share or streams groups, so only settings of
# consumer groups are here.
GROUP_SETTINGS: Mapping[str, GroupSetting] = MappingProxyType(
    {
        group_setting.setting.name: group_setting
        for group_setting in (HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, ASSIGNMENT_INTERVAL_MS)
    }
)
