"""The part of the table that logs read: segments, retention, flushing, timestamps, compression and
the work done in the background.

A topic has settings of its own for most of these (`topic_settings`); here are the defaults that a
node gives to all its topics.
"""

from __future__ import annotations

from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import BetweenOr, at_least, between, list_of, one_of

BOOLEAN, INT, LONG, DOUBLE, STRING, LIST = (
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.LONG,
    SettingType.DOUBLE,
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
    "The size at which a log begins a new segment file.",
    at_least(1024 * 1024),
    CLUSTER,
)
LOG_ROLL_MS = Setting[int | None](
    "log.roll.ms",
    LONG,
    None,
    HIGH,
    "The age in milliseconds at which a log begins a new segment. Unset: log.roll.hours.",
    None,
    CLUSTER,
)
LOG_ROLL_HOURS = Setting(
    "log.roll.hours",
    INT,
    168,
    HIGH,
    "The age in hours at which a log begins a new segment; log.roll.ms comes first.",
    at_least(1),
)
LOG_ROLL_JITTER_MS = Setting[int | None](
    "log.roll.jitter.ms",
    LONG,
    None,
    HIGH,
    (
        "The most, in milliseconds, by which a roll may come early, chosen at random so that logs "
        "do "
        "not roll together."
    ),
    None,
    CLUSTER,
)
LOG_ROLL_JITTER_HOURS = Setting(
    "log.roll.jitter.hours",
    INT,
    0,
    HIGH,
    "The same as log.roll.jitter.ms in hours, used when that is not set.",
    at_least(0),
)
LOG_INDEX_SIZE_MAX_BYTES = Setting(
    "log.index.size.max.bytes",
    INT,
    10 * 1024**2,
    MEDIUM,
    "The most bytes of one offset index or time index.",
    at_least(4),
    CLUSTER,
)
LOG_INDEX_INTERVAL_BYTES = Setting(
    "log.index.interval.bytes",
    INT,
    4096,
    MEDIUM,
    "How many bytes of log lie between two entries of its offset index.",
    at_least(0),
    CLUSTER,
)
LOG_SEGMENT_DELETE_DELAY_MS = Setting(
    "log.segment.delete.delay.ms",
    LONG,
    60_000,
    HIGH,
    "How long the files of a deleted segment or log stay, renamed, before they are removed.",
    at_least(0),
    CLUSTER,
)

# Retention and cleaning.
LOG_RETENTION_BYTES = Setting(
    "log.retention.bytes",
    LONG,
    -1,
    HIGH,
    "The size of a partition beyond which its oldest segments go; -1 for no limit.",
    None,
    CLUSTER,
)
LOG_RETENTION_MS = Setting[int | None](
    "log.retention.ms",
    LONG,
    None,
    HIGH,
    "How many milliseconds a segment is kept; -1 for ever. Unset: log.retention.minutes.",
    None,
    CLUSTER,
)
LOG_RETENTION_MINUTES = Setting[int | None](
    "log.retention.minutes",
    INT,
    None,
    HIGH,
    "How many minutes a segment is kept, when log.retention.ms is not set.",
)
LOG_RETENTION_HOURS = Setting(
    "log.retention.hours",
    INT,
    168,
    HIGH,
    "How many hours a segment is kept, when log.retention.ms and .minutes are not set.",
)
LOG_RETENTION_CHECK_INTERVAL_MS = Setting(
    "log.retention.check.interval.ms",
    LONG,
    300_000,
    MEDIUM,
    "How often logs are looked at for segments to delete.",
    at_least(1),
)
LOG_CLEANUP_POLICY = Setting[tuple[str, ...]](
    "log.cleanup.policy",
    LIST,
    ("delete",),
    MEDIUM,
    (
        "What happens to old segments: delete, compact (keep the last value of each key), or both; "
        "with neither they stay for ever."
    ),
    CLEANUP_POLICIES,
    CLUSTER,
)
LOG_CLEANER_DELETE_RETENTION_MS = Setting(
    "log.cleaner.delete.retention.ms",
    LONG,
    86_400_000,
    MEDIUM,
    (
        "How long a compacted log keeps the markers of deleted keys, so that readers can see the "
        "deletion."
    ),
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Setting(
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    0,
    MEDIUM,
    "How long a record stays out of compaction.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Setting(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    MAX_LONG,
    MEDIUM,
    "The longest that a record may wait for compaction.",
    at_least(1),
    CLUSTER,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = Setting(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    0.5,
    MEDIUM,
    "The share of uncompacted bytes at which a log is compacted.",
    between(0, 1),
    CLUSTER,
)
LOG_CLEANER_ENABLE = Setting(
    "log.cleaner.enable",
    BOOLEAN,
    True,
    MEDIUM,
    "Whether logs with the policy compact are compacted at all.",
)
LOG_CLEANER_BACKOFF_MS = Setting(
    "log.cleaner.backoff.ms",
    LONG,
    15_000,
    MEDIUM,
    "How long compaction rests when no log is due.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Setting(
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    1.7976931348623157e308,
    MEDIUM,
    "How much compaction reads and writes in a second, in the mean.",
    None,
    CLUSTER,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Setting(
    "log.cleaner.dedupe.buffer.size",
    LONG,
    128 * 1024 * 1024,
    MEDIUM,
    (
        "The memory for the keys of one compaction. Where they do not all fit, the log is "
        "compacted "
        "in several runs."
    ),
    None,
    CLUSTER,
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Setting(
    "log.cleaner.io.buffer.load.factor",
    DOUBLE,
    0.9,
    MEDIUM,
    "The share of the dedupe buffer that is used.",
    None,
    CLUSTER,
)
LOG_CLEANER_IO_BUFFER_SIZE = Setting(
    "log.cleaner.io.buffer.size",
    INT,
    512 * 1024,
    MEDIUM,
    "Without effect: compaction reads and writes in pieces of its own size.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_THREADS = Setting(
    "log.cleaner.threads",
    INT,
    1,
    MEDIUM,
    "Without effect: one child process compacts, one log at a time.",
    at_least(0),
    CLUSTER,
)

# Flushing and checkpoints.
LOG_FLUSH_INTERVAL_MESSAGES = Setting(
    "log.flush.interval.messages",
    LONG,
    MAX_LONG,
    HIGH,
    "How many records may be appended to a log before it is synced.",
    at_least(1),
    CLUSTER,
)
LOG_FLUSH_INTERVAL_MS = Setting[int | None](
    "log.flush.interval.ms",
    LONG,
    None,
    HIGH,
    "How long an appended record may stay unsynced. Unset: log.flush.scheduler.interval.ms.",
    None,
    CLUSTER,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = Setting(
    "log.flush.scheduler.interval.ms",
    LONG,
    MAX_LONG,
    HIGH,
    "How often logs are looked at for records that must be synced.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = Setting(
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    HIGH,
    "How often the points from which recovery begins are written.",
    at_least(0),
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = Setting(
    "log.flush.start.offset.checkpoint.interval.ms",
    INT,
    60_000,
    HIGH,
    "How often the start offsets of logs are written.",
    at_least(0),
)
LOG_INITIAL_TASK_DELAY_MS = Setting(
    "log.initial.task.delay.ms",
    LONG,
    30_000,
    LOW,
    "How long after a start the periodic work on logs begins. For tests.",
    at_least(0),
    internal=True,
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = Setting(
    "num.recovery.threads.per.data.dir",
    INT,
    2,
    HIGH,
    "How many logs of one directory are recovered at a time at a start, and flushed at a stop.",
    at_least(1),
    CLUSTER,
)

# Records.
MESSAGE_MAX_BYTES = Setting(
    "message.max.bytes",
    INT,
    1024**2 + 12,
    HIGH,
    "The largest record batch taken, as it arrives (compressed).",
    at_least(0),
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_TYPE = Setting(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    MEDIUM,
    "Whether records carry the time their producer gave them or the time of their append.",
    TIMESTAMP_TYPES,
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = Setting(
    "log.message.timestamp.before.max.ms",
    LONG,
    MAX_LONG,
    MEDIUM,
    "How far a record's CreateTime may lie before the broker's clock.",
    at_least(0),
    CLUSTER,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = Setting(
    "log.message.timestamp.after.max.ms",
    LONG,
    3_600_000,
    MEDIUM,
    "How far a record's CreateTime may lie after the broker's clock.",
    at_least(0),
    CLUSTER,
)
COMPRESSION_TYPE = Setting(
    "compression.type",
    STRING,
    "producer",
    HIGH,
    "How batches are compressed in the log: as the producer did, or by a codec of the topic's own.",
    COMPRESSION_TYPES,
    CLUSTER,
)
COMPRESSION_GZIP_LEVEL = Setting(
    "compression.gzip.level",
    INT,
    -1,
    MEDIUM,
    "The level for compression.type=gzip; -1 for the codec's own.",
    BetweenOr(1, 9, -1),
    CLUSTER,
)
COMPRESSION_LZ4_LEVEL = Setting(
    "compression.lz4.level",
    INT,
    9,
    MEDIUM,
    "The level for compression.type=lz4.",
    between(1, 17),
    CLUSTER,
)
COMPRESSION_ZSTD_LEVEL = Setting(
    "compression.zstd.level",
    INT,
    3,
    MEDIUM,
    "The level for compression.type=zstd.",
    between(-131072, 22),
    CLUSTER,
)
PRODUCER_ID_EXPIRATION_MS = Setting(
    "producer.id.expiration.ms",
    INT,
    86_400_000,
    LOW,
    "How long a partition remembers an idempotent producer that has fallen silent.",
    at_least(1),
    CLUSTER,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = Setting(
    "producer.id.expiration.check.interval.ms",
    INT,
    600_000,
    LOW,
    "How often silent producers are looked for. For tests.",
    at_least(1),
    internal=True,
)
MIN_INSYNC_REPLICAS = Setting(
    "min.insync.replicas",
    INT,
    1,
    HIGH,
    "How many replicas must have a write with acks=all before it is acknowledged.",
    at_least(1),
    CLUSTER,
)
UNCLEAN_LEADER_ELECTION_ENABLE = Setting(
    "unclean.leader.election.enable",
    BOOLEAN,
    False,
    HIGH,
    (
        "Whether a replica that is not in sync may lead when no other is left, which can lose "
        "acknowledged records."
    ),
    None,
    CLUSTER,
)
