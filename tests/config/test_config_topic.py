"""LogConfig: overrides of the topic, then broker settings, then defaults."""

from __future__ import annotations

import pickle
from typing import Any, TypeVar

import pytest

from penstock.config.setting import Setting
from penstock.config.settings import NODE_SETTINGS
from penstock.config.topic import LogConfig, TimestampType, log_config
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_ERROR_MESSAGE

T = TypeVar("T")


class Broker:
    """A broker with a few settings."""

    def __init__(self, **texts: str) -> None:
        named = {name.replace("_", "."): text for name, text in texts.items()}
        self._values: dict[str, Any] = {
            name: NODE_SETTINGS[name].parse(text) for name, text in named.items()
        }

    def __getitem__(self, setting: Setting[T], /) -> T:
        value: T = self._values.get(setting.name, setting.default)
        return value


def test_defaults_are_kafkas() -> None:
    config = log_config(Broker(), {})
    assert config == LogConfig()
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (
        1 << 30,
        7 * 86_400_000,
        7 * 86_400_000,
    )
    assert config.max_message_bytes == 1_048_588
    assert config.message_timestamp_type is TimestampType.CREATE_TIME
    assert config.cleanup_policy == ("delete",)
    assert (config.flush_ms, config.flush_messages) == (2**63 - 1, 2**63 - 1)


def test_unsupported_settings_are_refused_unless_they_have_no_effect() -> None:
    assert log_config(Broker(), {"remote.storage.enable": "false"}) == LogConfig()
    with pytest.raises(KafkaError) as refused:
        log_config(Broker(), {"remote.storage.enable": "true"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_settings_without_effect_are_accepted() -> None:
    assert log_config(Broker(), {"preallocate": "true"}) == LogConfig()


@pytest.mark.parametrize(
    ("text", "replicas"), [("*", ("*",)), ("", ()), ("0:1,0:2,12:101", ("0:1", "0:2", "12:101"))]
)
def test_throttled_replicas(text: str, replicas: tuple[str, ...]) -> None:
    for side in ("leader", "follower"):
        config = log_config(Broker(), {f"{side}.replication.throttled.replicas": text})
        assert getattr(config, f"{side}_replication_throttled_replicas") == replicas


@pytest.mark.parametrize("text", ["all", "0", "0:1,*", "1:a"])
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_throttled_replicas_are_validated_as_in_kafka(side: str, text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        log_config(Broker(), {f"{side}.replication.throttled.replicas": text})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert "must be the literal '*' or a list of replicas" in refused.value.message


def test_log_config_can_be_pickled() -> None:
    config = LogConfig(segment_bytes=100, cleanup_policy=("compact",))
    assert pickle.loads(pickle.dumps(config)) == config


def test_broker_settings_are_the_defaults() -> None:
    config = log_config(
        Broker(
            log_segment_bytes="2097152",
            message_max_bytes="77",
            log_message_timestamp_type="LogAppendTime",
        ),
        {},
    )
    assert (config.segment_bytes, config.max_message_bytes) == (2_097_152, 77)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME


def test_overrides_take_precedence() -> None:
    broker = Broker(log_segment_bytes="2097152", min_insync_replicas="2", compression_type="zstd")
    config = log_config(
        broker,
        {
            "segment.bytes": " 1048576 ",
            "min.insync.replicas": "3",
            "cleanup.policy": "compact,delete",
        },
    )
    assert (config.segment_bytes, config.min_insync_replicas, config.compression_type) == (
        1_048_576,
        3,
        "zstd",
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacts
    assert config.deletes


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        (Broker(log_retention_hours="1"), 3_600_000),
        (Broker(log_retention_hours="1", log_retention_minutes="2"), 120_000),
        (Broker(log_retention_hours="1", log_retention_minutes="2", log_retention_ms="3"), 3),
        (Broker(log_retention_hours="-1"), -1),
        (Broker(log_retention_minutes="-7"), -1),
        (Broker(log_retention_ms="-7"), -1),
    ],
)
def test_finest_unit_that_is_set_counts(broker: Broker, retention_ms: int) -> None:
    assert log_config(broker, {}).retention_ms == retention_ms


def test_rolling_and_flushing_fall_back_to_other_settings() -> None:
    hourly = log_config(
        Broker(log_roll_hours="2", log_roll_jitter_hours="1", log_flush_scheduler_interval_ms="9"),
        {},
    )
    assert (hourly.segment_ms, hourly.segment_jitter_ms, hourly.flush_ms) == (
        7_200_000,
        3_600_000,
        9,
    )
    finer = log_config(
        Broker(
            log_roll_hours="2", log_roll_ms="5", log_roll_jitter_ms="6", log_flush_interval_ms="7"
        ),
        {},
    )
    assert (finer.segment_ms, finer.segment_jitter_ms, finer.flush_ms) == (5, 6, 7)


def test_internal_segment_bytes_may_be_below_the_minimum() -> None:
    assert log_config(Broker(), {"internal.segment.bytes": "100"}).segment_bytes == 100
    assert (
        log_config(
            Broker(), {"internal.segment.bytes": "100", "segment.bytes": "1048576"}
        ).segment_bytes
        == 100
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"shape": "1"}, "Unknown topic config name: shape."),
        (
            {"retention.mss": "1"},
            "Unknown topic config name: retention.mss. Did you mean retention.ms?",
        ),
        pytest.param(
            {"x" * 100_000: "1"},
            f"Unknown topic config name: {'x' * 100_000}."[:MAX_ERROR_MESSAGE] + "…",
            id="long name",
        ),
        (
            {"segment.bytes": "100"},
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"segment.bytes": "big"},
            "Invalid value big for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"internal.segment.bytes": "0"},
            "Invalid value 0 for configuration internal.segment.bytes: Value must be at least 1",
        ),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
        (
            {"message.timestamp.type": "createtime"},
            (
                "Invalid value createtime for configuration message.timestamp.type: String must be "
                "one of: CreateTime, LogAppendTime"
            ),
        ),
    ],
)
def test_invalid_overrides_are_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        log_config(Broker(), overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == message
