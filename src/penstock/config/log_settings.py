"""Settings of logs: segments, retention, flushing, timestamps, compression.

Most are the defaults of topic settings (`topic_settings`). `cleaner_settings` has the log cleaner.
"""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import BetweenOr, at_least, between, list_of, one_of

BOOLEAN, INT, LONG, STRING, LIST = (
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.LONG,
    SettingType.STRING,
    SettingType.LIST,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER = Dynamic.CLUSTER_WIDE

MAX_LONG = 2**63 - 1
COMPRESSION_TYPES = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = list_of("compact", "delete")
TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")

# Segments.
LOG_SEGMENT_BYTES = Setting(
    "log.segment.bytes",
    INT,
    1024**3,
    HIGH,
    "The maximum size of a segment file.",
    at_least(1024 * 1024),
    CLUSTER,
)
LOG_ROLL_MS = Setting[int | None](
    "log.roll.ms",
    LONG,
    None,
    HIGH,
    "The maximum time in milliseconds before a new segment is rolled. If not set, "
    "log.roll.hours is used.",
    None,
    CLUSTER,
)
LOG_ROLL_HOURS = Setting(
    "log.roll.hours",
    INT,
    168,
    HIGH,
    "The maximum time in hours before a new segment is rolled. log.roll.ms takes precedence.",
    at_least(1),
)
LOG_ROLL_JITTER_MS = Setting[int | None](
    "log.roll.jitter.ms",
    LONG,
    None,
    HIGH,
    (
        "The maximum random jitter in milliseconds subtracted from the roll time, so that logs "
        "do not roll together. If not set, log.roll.jitter.hours is used."
    ),
    None,
    CLUSTER,
)
LOG_ROLL_JITTER_HOURS = Setting(
    "log.roll.jitter.hours",
    INT,
    0,
    HIGH,
    "The maximum random jitter in hours subtracted from the roll time. log.roll.jitter.ms "
    "takes precedence.",
    at_least(0),
)
LOG_INDEX_SIZE_MAX_BYTES = Setting(
    "log.index.size.max.bytes",
    INT,
    10 * 1024**2,
    MEDIUM,
    "The maximum size of an offset index or time index.",
    at_least(4),
    CLUSTER,
)
LOG_INDEX_INTERVAL_BYTES = Setting(
    "log.index.interval.bytes",
    INT,
    4096,
    MEDIUM,
    "The number of bytes of log between two entries of the offset index.",
    at_least(0),
    CLUSTER,
)
LOG_SEGMENT_DELETE_DELAY_MS = Setting(
    "log.segment.delete.delay.ms",
    LONG,
    60_000,
    HIGH,
    "The time before the renamed files of a deleted segment or log are removed.",
    at_least(0),
    CLUSTER,
)

# Retention.
LOG_RETENTION_BYTES = Setting(
    "log.retention.bytes",
    LONG,
    -1,
    HIGH,
    "The maximum size of a partition before its oldest segments are deleted. -1 means no limit.",
    None,
    CLUSTER,
)
LOG_RETENTION_MS = Setting[int | None](
    "log.retention.ms",
    LONG,
    None,
    HIGH,
    "The time in milliseconds to keep a segment before it is deleted. -1 means no limit. If"
    " not set, log.retention.minutes is used.",
    None,
    CLUSTER,
)
LOG_RETENTION_MINUTES = Setting[int | None](
    "log.retention.minutes",
    INT,
    None,
    HIGH,
    "The time in minutes to keep a segment before it is deleted. If not set, "
    "log.retention.hours is used.",
)
LOG_RETENTION_HOURS = Setting(
    "log.retention.hours",
    INT,
    168,
    HIGH,
    "The time in hours to keep a segment before it is deleted. log.retention.ms and "
    "log.retention.minutes take precedence.",
)
LOG_RETENTION_CHECK_INTERVAL_MS = Setting(
    "log.retention.check.interval.ms",
    LONG,
    300_000,
    MEDIUM,
    "The frequency with which logs are checked for segments to delete.",
    at_least(1),
)
LOG_CLEANUP_POLICY = Setting[tuple[str, ...]](
    "log.cleanup.policy",
    LIST,
    ("delete",),
    MEDIUM,
    (
        "The cleanup policy for segments: delete, compact (keep the latest value of each key), "
        "or both. Without a policy, segments are kept forever."
    ),
    CLEANUP_POLICIES,
    CLUSTER,
)

# Flushing and checkpoints.
LOG_FLUSH_INTERVAL_MESSAGES = Setting(
    "log.flush.interval.messages",
    LONG,
    MAX_LONG,
    HIGH,
    "The number of records appended to a log before it is flushed to disk.",
    at_least(1),
    CLUSTER,
)
LOG_FLUSH_INTERVAL_MS = Setting[int | None](
    "log.flush.interval.ms",
    LONG,
    None,
    HIGH,
    "The maximum time that a record is kept in memory before it is flushed to disk. If not "
    "set, log.flush.scheduler.interval.ms is used.",
    None,
    CLUSTER,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Setting(
    "log.flush.scheduler.interval.ms",
    LONG,
    MAX_LONG,
    HIGH,
    "The frequency with which logs are checked for records to flush.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Setting(
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    HIGH,
    "The frequency with which the recovery points of logs are saved.",
    at_least(0),
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Setting(
    "log.flush.start.offset.checkpoint.interval.ms",
    INT,
    60_000,
    HIGH,
    "The frequency with which the start offsets of logs are saved.",
    at_least(0),
)
LOG_INITIAL_TASK_DELAY_MS = Setting(
    "log.initial.task.delay.ms",
    LONG,
    30_000,
    LOW,
    "The time after the start at which periodic tasks on logs begin. For tests.",
    at_least(0),
    internal=True,
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = Setting(
    "num.recovery.threads.per.data.dir",
    INT,
    2,
    HIGH,
    "The number of logs per directory that are recovered concurrently at startup and "
    "flushed concurrently at shutdown.",
    at_least(1),
    CLUSTER,
)

# Records.
MESSAGE_MAX_BYTES = Setting(
    "message.max.bytes",
    INT,
    1024**2 + 12,
    HIGH,
    "The largest record batch size allowed, after compression.",
    at_least(0),
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_TYPE = Setting(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    MEDIUM,
    "The timestamp of records: CreateTime (set by the producer) or LogAppendTime (set by "
    "the broker).",
    TIMESTAMP_TYPES,
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting(
    "log.message.timestamp.before.max.ms",
    LONG,
    MAX_LONG,
    MEDIUM,
    "The maximum difference between the broker's clock and an earlier CreateTime of a record.",
    at_least(0),
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting(
    "log.message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    MEDIUM,
    "The maximum difference between a later CreateTime of a record and the broker's clock.",
    at_least(0),
    CLUSTER,
)
COMPRESSION_TYPE = Setting(
    "compression.type",
    STRING,
    "producer",
    HIGH,
    "The compression type of a topic: that of the producer, or a codec of the broker.",
    COMPRESSION_TYPES,
    CLUSTER,
)
COMPRESSION_GZIP_LEVEL = Setting(
    "compression.gzip.level",
    INT,
    -1,
    MEDIUM,
    "The compression level if compression.type is gzip. -1 is the default of the codec.",
    BetweenOr(1, 9, -1),
    CLUSTER,
)
COMPRESSION_LZ4_LEVEL = Setting(
    "compression.lz4.level",
    INT,
    9,
    MEDIUM,
    "The compression level if compression.type is lz4.",
    between(1, 17),
    CLUSTER,
)
COMPRESSION_ZSTD_LEVEL = Setting(
    "compression.zstd.level",
    INT,
    3,
    MEDIUM,
    "The compression level if compression.type is zstd.",
    between(-131072, 22),
    CLUSTER,
)
PRODUCER_ID_EXPIRATION_MS = Setting(
    "producer.id.expiration.ms",
    INT,
    86_400_000,
    LOW,
    "The time after which a partition removes the state of an inactive idempotent producer.",
    at_least(1),
    CLUSTER,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = Setting(
    "producer.id.expiration.check.interval.ms",
    INT,
    600_000,
    LOW,
    "The frequency with which partitions check for expired producer ids. For tests.",
    at_least(1),
    internal=True,
)
MIN_INSYNC_REPLICAS = Setting(
    "min.insync.replicas",
    INT,
    1,
    HIGH,
    "The minimum number of in-sync replicas, including the leader, for a write with "
    "acks=all to succeed.",
    at_least(1),
    CLUSTER,
)
UNCLEAN_LEADER_ELECTION_ENABLE = Setting(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    HIGH,
    (
        "Enable the election of replicas outside the ISR as a last resort, even though this may"
        " lose data."
    ),
    None,
    CLUSTER,
)
LOG_PREALLOCATE = Setting(
    "log.preallocate",
    BOOLEAN,
    False,
    MEDIUM,
    "Preallocate the file of a new segment. No effect in Penstock: a file grows as records are "
    "appended.",
    None,
    CLUSTER,
)
