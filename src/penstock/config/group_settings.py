"""The part of the table that is about groups: their sessions and sizes, and the topic that keeps
their offsets."""

from __future__ import annotations

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

_MOST = 2**31 - 1

# Classic groups.
GROUP_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.min.session.timeout.ms",
    INT,
    6_000,
    MEDIUM,
    "The shortest session timeout that a member of a classic group may ask for.",
)
GROUP_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.max.session.timeout.ms",
    INT,
    1_800_000,
    MEDIUM,
    "The longest session timeout that a member of a classic group may ask for.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS = Setting(
    "group.initial.rebalance.delay.ms",
    INT,
    3_000,
    MEDIUM,
    "How long an empty classic group waits for more members when the first one joins.",
)
GROUP_MAX_SIZE = Setting(
    "group.max.size", INT, _MOST, MEDIUM, "How many members a classic group may have.", at_least(1)
)

# Consumer groups (KIP-848).
CONSUMER_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.session.timeout.ms",
    INT,
    45_000,
    MEDIUM,
    "A member of a consumer group that was not heard of for so long is removed.",
    at_least(1),
)
CONSUMER_MIN_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.min.session.timeout.ms",
    INT,
    45_000,
    MEDIUM,
    "The shortest session timeout that a group may be given.",
    at_least(1),
)
CONSUMER_MAX_SESSION_TIMEOUT_MS = Setting(
    "group.consumer.max.session.timeout.ms",
    INT,
    60_000,
    MEDIUM,
    "The longest session timeout that a group may be given.",
    at_least(1),
)
CONSUMER_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.heartbeat.interval.ms",
    INT,
    5_000,
    MEDIUM,
    "How often members of a consumer group are asked to be heard.",
    at_least(1),
)
CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    5_000,
    MEDIUM,
    "The shortest interval that a group may be given.",
    at_least(1),
)
CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = Setting(
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    15_000,
    MEDIUM,
    "The longest interval that a group may be given.",
    at_least(1),
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.assignment.interval.ms",
    INT,
    1_000,
    MEDIUM,
    "How long a consumer group waits after an assignment before it works out the next one.",
    at_least(0),
    Dynamic.CLUSTER_WIDE,
)
CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.min.assignment.interval.ms",
    INT,
    0,
    MEDIUM,
    "The shortest such pause that a group may be given.",
    at_least(0),
)
CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = Setting(
    "group.consumer.max.assignment.interval.ms",
    INT,
    15_000,
    MEDIUM,
    "The longest such pause that a group may be given.",
    at_least(0),
)
CONSUMER_MAX_SIZE = Setting(
    "group.consumer.max.size",
    INT,
    _MOST,
    MEDIUM,
    "How many members a consumer group may have.",
    at_least(1),
)
CONSUMER_ASSIGNORS = Setting[tuple[str, ...]](
    "group.consumer.assignors",
    LIST,
    ("uniform", "range"),
    MEDIUM,
    "The assignors that a member of a consumer group may choose; the first is the default.",
)
CONSUMER_MIGRATION_POLICY = Setting(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    MEDIUM,
    "Which live groups may change between the classic and the consumer protocol.",
    IgnoringCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")),
)

# Offsets, and their topic.
OFFSET_METADATA_MAX_BYTES = Setting(
    "offset.metadata.max.bytes",
    INT,
    4_096,
    HIGH,
    "How many characters of metadata may be committed with an offset.",
)
OFFSETS_COMMIT_TIMEOUT_MS = Setting(
    "offsets.commit.timeout.ms",
    INT,
    5_000,
    HIGH,
    "How long a coordinator waits until what it wrote is committed.",
    at_least(1),
)
OFFSETS_LOAD_BUFFER_SIZE = Setting(
    "offsets.load.buffer.size",
    INT,
    5 * 1024 * 1024,
    HIGH,
    "No effect in Penstock: a coordinator loads in small pieces.",
    at_least(1),
)
OFFSETS_RETENTION_MINUTES = Setting(
    "offsets.retention.minutes",
    INT,
    10_080,
    HIGH,
    "How long the offsets of a group without members are kept.",
    at_least(1),
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = Setting(
    "offsets.retention.check.interval.ms",
    LONG,
    600_000,
    HIGH,
    "How often it is looked for offsets that are too old.",
    at_least(1),
)
OFFSETS_TOPIC_COMPRESSION_CODEC = Setting(
    "offsets.topic.compression.codec",
    INT,
    0,
    HIGH,
    "How what coordinators write is compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
)
OFFSETS_TOPIC_NUM_PARTITIONS = Setting(
    "offsets.topic.num.partitions",
    INT,
    50,
    HIGH,
    "The partitions of the topic of group offsets. Never change it later.",
    at_least(1),
)
OFFSETS_TOPIC_REPLICATION_FACTOR = Setting(
    "offsets.topic.replication.factor",
    SHORT,
    3,
    HIGH,
    "The replication factor of the topic of group offsets.",
    at_least(1),
)
OFFSETS_TOPIC_SEGMENT_BYTES = Setting(
    "offsets.topic.segment.bytes",
    INT,
    100 * 1024 * 1024,
    HIGH,
    (
        "The segment.bytes of the topic of group offsets: small ones are compacted, and so loaded, "
        "sooner."
    ),
    at_least(1),
)
