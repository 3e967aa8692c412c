"""The settings of a topic's logs: overrides of the topic, then broker settings, then defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from penstock.config import topic_settings as topic
from penstock.config.setting import InvalidSettingError, Setting, did_you_mean
from penstock.config.settings import find_unsupported
from penstock.errors import ErrorCode, KafkaError

T = TypeVar("T")


class TimestampType(StrEnum):
    """The source of a record's timestamp: the producer, or the leader that appended it."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log. `LogConfig()` has Kafka's defaults. Values are not validated, so
    that tests can use small segments."""

    segment_bytes: int = topic.SEGMENT_BYTES.default_value()
    segment_ms: int = topic.SEGMENT_MS.default_value()
    segment_jitter_ms: int = topic.SEGMENT_JITTER_MS.default_value()
    segment_index_bytes: int = topic.SEGMENT_INDEX_BYTES.default_value()
    index_interval_bytes: int = topic.INDEX_INTERVAL_BYTES.default_value()
    retention_bytes: int = topic.RETENTION_BYTES.default_value()
    retention_ms: int = topic.RETENTION_MS.default_value()
    flush_messages: int = topic.FLUSH_MESSAGES.default_value()
    flush_ms: int = topic.FLUSH_MS.default_value()
    max_message_bytes: int = topic.MAX_MESSAGE_BYTES.default_value()
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS.default_value()
    message_timestamp_after_max_ms: int = topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS.default_value()
    cleanup_policy: tuple[str, ...] = topic.CLEANUP_POLICY.default_value()
    compression_type: str = topic.COMPRESSION_TYPE.default_value()
    compression_gzip_level: int = topic.COMPRESSION_GZIP_LEVEL.default_value()
    compression_lz4_level: int = topic.COMPRESSION_LZ4_LEVEL.default_value()
    compression_zstd_level: int = topic.COMPRESSION_ZSTD_LEVEL.default_value()
    delete_retention_ms: int = topic.DELETE_RETENTION_MS.default_value()
    file_delete_delay_ms: int = topic.FILE_DELETE_DELAY_MS.default_value()
    min_insync_replicas: int = topic.MIN_INSYNC_REPLICAS.default_value()
    unclean_leader_election_enable: bool = topic.UNCLEAN_LEADER_ELECTION_ENABLE.default_value()
    min_compaction_lag_ms: int = topic.MIN_COMPACTION_LAG_MS.default_value()
    max_compaction_lag_ms: int = topic.MAX_COMPACTION_LAG_MS.default_value()
    min_cleanable_dirty_ratio: float = topic.MIN_CLEANABLE_DIRTY_RATIO.default_value()
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    # Derived once: every append reads them.
    compacts: bool = field(init=False)
    deletes: bool = field(init=False)
    # The leader opens each batch: it must have keys, or the topic's codec.
    opens_batches: bool = field(init=False)
    # The age at which the active segment is rolled, so that it can be compacted.
    max_segment_ms: int = field(init=False)

    def __post_init__(self) -> None:
        compacts = "compact" in self.cleanup_policy
        derived = {
            "compacts": compacts,
            "deletes": "delete" in self.cleanup_policy,
            "opens_batches": compacts or self.compression_type != "producer",
            "max_segment_ms": (
                min(self.segment_ms, self.max_compaction_lag_ms) if compacts else self.segment_ms
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


_SETTING_NAMES = {
    field.name: field.name.replace("_", ".") for field in fields(LogConfig) if field.init
}


class BrokerValues(Protocol):
    """Typed values by setting: a `NodeConfig`, a `DynamicBrokerConfig`, or a fake of a test."""

    def __getitem__(self, setting: Setting[T], /) -> T: ...


def broker_default(broker: BrokerValues, setting: Setting[T]) -> T:
    """Return the value of a topic setting for a topic without an override."""
    for synonym in topic.TOPIC_SYNONYMS[setting.name]:
        value = broker[synonym.setting]
        if value is not None:
            return cast(T, in_topic_units(setting, synonym, value))
    return setting.default_value()


def parse_topic_settings(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Parse the overrides of a topic. Raises KafkaError INVALID_CONFIG for an unknown name or an
    invalid value."""
    parsed = {}
    for name, text in overrides.items():
        unsupported = find_unsupported(name)
        if unsupported is None:
            parsed[name] = _parse(name, text)
        elif reason := unsupported.refusal(name, text):
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    return parsed


def log_config(broker: BrokerValues, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic's logs: overrides, then the broker's, then the defaults.

    Raises KafkaError INVALID_CONFIG for overrides that are invalid.
    """
    defaults = {
        name: broker_default(broker, setting) for name, setting in topic.TOPIC_SETTINGS.items()
    }
    return build_log_config(defaults, overrides)


def build_log_config(defaults: Mapping[str, Any], overrides: Mapping[str, str]) -> LogConfig:
    """As `log_config`, with the value of every topic setting for a topic without overrides."""
    values = {**defaults, **parse_topic_settings(overrides)}
    internal_segment_bytes = values.pop(topic.INTERNAL_SEGMENT_BYTES.name)
    if internal_segment_bytes is not None:
        values[topic.SEGMENT_BYTES.name] = _check_internal_segment_bytes(internal_segment_bytes)
    _check_compaction_lag(values)
    values[topic.MESSAGE_TIMESTAMP_TYPE.name] = TimestampType(
        values[topic.MESSAGE_TIMESTAMP_TYPE.name]
    )
    return LogConfig(**{field: values[name] for field, name in _SETTING_NAMES.items()})


def in_topic_units(setting: Setting[Any], synonym: topic.Synonym, value: Any) -> Any:
    if synonym.factor != 1:
        value *= synonym.factor
    # Any negative retention of a broker means no limit, which is -1 for a topic.
    return max(value, -1) if setting.name == topic.RETENTION_MS.name else value


def _parse(name: str, text: str) -> Any:
    setting = topic.TOPIC_SETTINGS.get(name)
    if setting is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Unknown topic config name: {name}.{did_you_mean(name, topic.TOPIC_SETTINGS)}",
        )
    try:
        return setting.parse(text)
    except InvalidSettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_internal_segment_bytes(internal_segment_bytes: int) -> int:
    if internal_segment_bytes < 1:
        reason = (
            f"Invalid value {internal_segment_bytes} for configuration "
            "internal.segment.bytes: Value must be at least 1"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    return internal_segment_bytes


def _check_compaction_lag(values: Mapping[str, Any]) -> None:
    least, most = values[topic.MIN_COMPACTION_LAG_MS.name], values[topic.MAX_COMPACTION_LAG_MS.name]
    if least > most:
        reason = (
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
