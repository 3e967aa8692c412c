"""Topic settings, each with its synonyms: the broker settings that determine its default. The first
one that is set counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from penstock.config import cleaner_settings as cleaner
from penstock.config import log_settings as log
from penstock.config.setting import Importance, Setting, SettingType
from penstock.config.validators import ThrottledReplicas, at_least

T = TypeVar("T")

LONG, MEDIUM = SettingType.LONG, Importance.MEDIUM

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that is the default of a topic setting. `factor` converts its unit."""

    setting: Setting[Any]
    factor: int = 1


_topic_settings: dict[str, Setting[Any]] = {}
_synonyms: dict[str, tuple[Synonym, ...]] = {}


def _topic(setting: Setting[T], *synonyms: Synonym) -> Setting[T]:
    _topic_settings[setting.name] = setting
    _synonyms[setting.name] = synonyms
    return setting


def _like(name: str, broker: Setting[T]) -> Setting[T]:
    """Return a topic setting with one synonym, whose type, doc and valid values it shares."""
    return _topic(
        Setting(name, broker.type, broker.default, MEDIUM, broker.doc, broker.valid),
        Synonym(broker),
    )


SEGMENT_BYTES = _like("segment.bytes", log.LOG_SEGMENT_BYTES)
SEGMENT_MS = _topic(
    Setting(
        "segment.ms",
        LONG,
        168 * HOUR_MS,
        MEDIUM,
        "The maximum time before a new segment is rolled.",
        at_least(1),
    ),
    Synonym(log.LOG_ROLL_MS),
    Synonym(log.LOG_ROLL_HOURS, HOUR_MS),
)
SEGMENT_JITTER_MS = _topic(
    Setting(
        "segment.jitter.ms",
        LONG,
        0,
        MEDIUM,
        "The maximum random jitter subtracted from the roll time, so that logs do not roll "
        "together.",
        at_least(0),
    ),
    Synonym(log.LOG_ROLL_JITTER_MS),
    Synonym(log.LOG_ROLL_JITTER_HOURS, HOUR_MS),
)
SEGMENT_INDEX_BYTES = _like("segment.index.bytes", log.LOG_INDEX_SIZE_MAX_BYTES)
INDEX_INTERVAL_BYTES = _like("index.interval.bytes", log.LOG_INDEX_INTERVAL_BYTES)
RETENTION_BYTES = _like("retention.bytes", log.LOG_RETENTION_BYTES)
RETENTION_MS = _topic(
    Setting(
        "retention.ms",
        LONG,
        168 * HOUR_MS,
        MEDIUM,
        "The time to keep a segment before it is deleted. -1 means no limit.",
        at_least(-1),
    ),
    Synonym(log.LOG_RETENTION_MS),
    Synonym(log.LOG_RETENTION_MINUTES, MINUTE_MS),
    Synonym(log.LOG_RETENTION_HOURS, HOUR_MS),
)
FLUSH_MESSAGES = _like("flush.messages", log.LOG_FLUSH_INTERVAL_MESSAGES)
FLUSH_MS = _topic(
    Setting(
        "flush.ms",
        LONG,
        log.MAX_LONG,
        MEDIUM,
        "The maximum time that a record is kept in memory before it is flushed to disk.",
        at_least(0),
    ),
    Synonym(log.LOG_FLUSH_INTERVAL_MS),
    Synonym(log.LOG_FLUSH_SCHEDULER_INTERVAL_MS),
)
MAX_MESSAGE_BYTES = _like("max.message.bytes", log.MESSAGE_MAX_BYTES)
MESSAGE_TIMESTAMP_TYPE = _like("message.timestamp.type", log.LOG_MESSAGE_TIMESTAMP_TYPE)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _like(
    "message.timestamp.before.max.ms", log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _like(
    "message.timestamp.after.max.ms", log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS
)
CLEANUP_POLICY = _like("cleanup.policy", log.LOG_CLEANUP_POLICY)
COMPRESSION_TYPE = _like("compression.type", log.COMPRESSION_TYPE)
COMPRESSION_GZIP_LEVEL = _like("compression.gzip.level", log.COMPRESSION_GZIP_LEVEL)
COMPRESSION_LZ4_LEVEL = _like("compression.lz4.level", log.COMPRESSION_LZ4_LEVEL)
COMPRESSION_ZSTD_LEVEL = _like("compression.zstd.level", log.COMPRESSION_ZSTD_LEVEL)
DELETE_RETENTION_MS = _like("delete.retention.ms", cleaner.LOG_CLEANER_DELETE_RETENTION_MS)
FILE_DELETE_DELAY_MS = _like("file.delete.delay.ms", log.LOG_SEGMENT_DELETE_DELAY_MS)
MIN_INSYNC_REPLICAS = _like("min.insync.replicas", log.MIN_INSYNC_REPLICAS)
UNCLEAN_LEADER_ELECTION_ENABLE = _like(
    "unclean.leader.election.enable", log.UNCLEAN_LEADER_ELECTION_ENABLE
)
MIN_COMPACTION_LAG_MS = _like("min.compaction.lag.ms", cleaner.LOG_CLEANER_MIN_COMPACTION_LAG_MS)
MAX_COMPACTION_LAG_MS = _like("max.compaction.lag.ms", cleaner.LOG_CLEANER_MAX_COMPACTION_LAG_MS)
MIN_CLEANABLE_DIRTY_RATIO = _like(
    "min.cleanable.dirty.ratio", cleaner.LOG_CLEANER_MIN_CLEANABLE_RATIO
)
PREALLOCATE = _like("preallocate", log.LOG_PREALLOCATE)


def _throttled(side: str) -> Setting[tuple[str, ...]]:
    return _topic(
        Setting[tuple[str, ...]](
            f"{side}.replication.throttled.replicas",
            SettingType.LIST,
            (),
            MEDIUM,
            f"The replicas whose replication is throttled on the {side} side: "
            "partition:broker,..., or * for all. A replica that is in sync is not throttled.",
            ThrottledReplicas(),
        )
    )


LEADER_REPLICATION_THROTTLED_REPLICAS = _throttled("leader")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _throttled("follower")
INTERNAL_SEGMENT_BYTES = _topic(
    Setting[int | None](
        "internal.segment.bytes",
        SettingType.INT,
        None,
        MEDIUM,
        "Overrides segment.bytes, without its minimum. For tests.",
        internal=True,
    )
)

TOPIC_SETTINGS: Mapping[str, Setting[Any]] = MappingProxyType(_topic_settings)
TOPIC_SYNONYMS: Mapping[str, tuple[Synonym, ...]] = MappingProxyType(_synonyms)
