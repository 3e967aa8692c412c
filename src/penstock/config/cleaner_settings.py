"""Settings of the log cleaner, which compacts logs."""

from __future__ import annotations

from penstock.config.log_settings import MAX_LONG
from penstock.config.setting import Dynamic, Importance, Setting, SettingType
from penstock.config.validators import at_least, between

BOOLEAN, INT, LONG, DOUBLE = (
    SettingType.BOOLEAN,
    SettingType.INT,
    SettingType.LONG,
    SettingType.DOUBLE,
)
MEDIUM = Importance.MEDIUM
CLUSTER = Dynamic.CLUSTER_WIDE

LOG_CLEANER_DELETE_RETENTION_MS = Setting(
    "log.cleaner.delete.retention.ms",
    LONG,
    86_400_000,
    MEDIUM,
    ("The time to keep tombstones in compacted logs, so that consumers can read the deletion."),
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = Setting(
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    0,
    MEDIUM,
    "The minimum time that a record stays uncompacted.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = Setting(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    MAX_LONG,
    MEDIUM,
    "The maximum time before a record becomes eligible for compaction.",
    at_least(1),
    CLUSTER,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = Setting(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    0.5,
    MEDIUM,
    "The minimum ratio of dirty bytes to all bytes for a log to be eligible for compaction.",
    between(0, 1),
    CLUSTER,
)
LOG_CLEANER_ENABLE = Setting(
    "log.cleaner.enable",
    BOOLEAN,
    True,
    MEDIUM,
    "Enable the log cleaner, which compacts logs with the cleanup policy compact.",
)
LOG_CLEANER_BACKOFF_MS = Setting(
    "log.cleaner.backoff.ms",
    LONG,
    15_000,
    MEDIUM,
    "The time that the log cleaner sleeps when no log is eligible.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = Setting(
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    1.7976931348623157e308,
    MEDIUM,
    "The log cleaner is throttled so that the sum of its reads and writes stays below this "
    "rate on average.",
    None,
    CLUSTER,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = Setting(
    "log.cleaner.dedupe.buffer.size",
    LONG,
    128 * 1024 * 1024,
    MEDIUM,
    (
        "The memory for the keys of one compaction. If they do not fit, the log is compacted in"
        " several passes."
    ),
    None,
    CLUSTER,
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = Setting(
    "log.cleaner.io.buffer.load.factor",
    DOUBLE,
    0.9,
    MEDIUM,
    "The percentage full that the dedupe buffer can become.",
    None,
    CLUSTER,
)
LOG_CLEANER_IO_BUFFER_SIZE = Setting(
    "log.cleaner.io.buffer.size",
    INT,
    512 * 1024,
    MEDIUM,
    "No effect in Penstock: the log cleaner chooses the sizes of its reads and writes.",
    at_least(0),
    CLUSTER,
)
LOG_CLEANER_THREADS = Setting(
    "log.cleaner.threads",
    INT,
    1,
    MEDIUM,
    "No effect in Penstock: one child process compacts one log at a time.",
    at_least(0),
    CLUSTER,
)
