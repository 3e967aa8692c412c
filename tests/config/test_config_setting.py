"""Settings: parsing and error messages as in Kafka, formatting as in DescribeConfigs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.group_settings import OFFSETS_TOPIC_REPLICATION_FACTOR
from penstock.config.log_settings import (
    COMPRESSION_GZIP_LEVEL,
    LOG_CLEANUP_POLICY,
    LOG_RETENTION_MS,
    LOG_SEGMENT_BYTES,
)
from penstock.config.node_settings import AUTO_CREATE_TOPICS_ENABLE, NODE_ID, PROCESS_ROLES
from penstock.config.setting import Importance, InvalidSettingError, Setting, SettingType

RATIO = Setting("ratio", SettingType.DOUBLE, 0.5, Importance.LOW, "")
SECRET = Setting[str | None]("secret", SettingType.PASSWORD, None, Importance.LOW, "")
COUNT = Setting("count", SettingType.LONG, 0, Importance.LOW, "")


@pytest.mark.parametrize(("text", "value"), [("true", True), (" TRUE ", True), ("False", False)])
def test_booleans_may_have_any_case_and_surrounding_blanks(text: str, value: bool) -> None:
    assert AUTO_CREATE_TOPICS_ENABLE.parse(text) is value


@pytest.mark.parametrize(
    ("setting", "text", "message"),
    [
        (
            AUTO_CREATE_TOPICS_ENABLE,
            "yes",
            (
                "Invalid value yes for configuration auto.create.topics.enable: Expected value to "
                "be "
                "either true or false"
            ),
        ),
        (
            LOG_SEGMENT_BYTES,
            "1 GB",
            "Invalid value 1 GB for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            LOG_SEGMENT_BYTES,
            "2147483648",
            (
                "Invalid value 2147483648 for configuration log.segment.bytes: Not a number of "
                "type "
                "INT"
            ),
        ),
        (
            LOG_SEGMENT_BYTES,
            "1_048_576",
            "Invalid value 1_048_576 for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            LOG_SEGMENT_BYTES,
            "",
            "Invalid value  for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            LOG_SEGMENT_BYTES,
            "1048575",
            (
                "Invalid value 1048575 for configuration log.segment.bytes: Value must be at least "
                "1048576"
            ),
        ),
        (
            LOG_RETENTION_MS,
            "9" * 19,
            (
                f"Invalid value {'9' * 19} for configuration log.retention.ms: Not a number of "
                "type "
                "LONG"
            ),
        ),
        (
            LOG_RETENTION_MS,
            "9" * 5000,
            (
                f"Invalid value {'9' * 5000} for configuration log.retention.ms: Not a number of "
                "type "
                "LONG"
            ),
        ),
        (
            OFFSETS_TOPIC_REPLICATION_FACTOR,
            "32768",
            (
                "Invalid value 32768 for configuration offsets.topic.replication.factor: Not a "
                "number "
                "of type SHORT"
            ),
        ),
        (
            COMPRESSION_GZIP_LEVEL,
            "0",
            (
                "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 "
                "and 9 or equal to -1"
            ),
        ),
        (
            LOG_CLEANUP_POLICY,
            "delete,purge",
            (
                "Invalid value delete,purge for configuration log.cleanup.policy: String must be "
                "one "
                "of: compact, delete"
            ),
        ),
        (
            LOG_CLEANUP_POLICY,
            "delete,delete",
            "Invalid value delete,delete for configuration log.cleanup.policy: "
            "Configuration 'log.cleanup.policy' values must not be duplicated.",
        ),
        (
            PROCESS_ROLES,
            "broker,",
            (
                "Invalid value broker, for configuration process.roles: Configuration "
                "'process.roles' "
                "values must not be empty."
            ),
        ),
        (RATIO, "NaN", "Invalid value NaN for configuration ratio: Not a number of type DOUBLE"),
        (
            RATIO,
            "1e999",
            "Invalid value 1e999 for configuration ratio: Not a number of type DOUBLE",
        ),
    ],
)
def test_errors_have_value_setting_and_reason(
    setting: Setting[object], text: str, message: str
) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        setting.parse(text)
    assert str(caught.value) == message


def test_lists_are_split_at_commas_and_trimmed() -> None:
    assert PROCESS_ROLES.parse(" broker ,\tcontroller ") == ("broker", "controller")
    assert LOG_CLEANUP_POLICY.parse("") == ()


def test_numbers_may_have_a_sign() -> None:
    assert COMPRESSION_GZIP_LEVEL.parse("+9") == 9
    assert COMPRESSION_GZIP_LEVEL.parse("-1") == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1.25e-5, "1.25E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.5e22, "-1.5E22"),
        (0.0, "0.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    assert RATIO.format(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_formatted_double_reads_back(value: float) -> None:
    shown = RATIO.format(value)
    assert shown is not None
    assert RATIO.parse(shown) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_formatted_number_reads_back(value: int) -> None:
    shown = COUNT.format(value)
    assert shown is not None
    assert COUNT.parse(shown) == value


def test_formatting_of_other_values() -> None:
    assert AUTO_CREATE_TOPICS_ENABLE.format(False) == "false"
    assert LOG_CLEANUP_POLICY.format(("compact", "delete")) == "compact,delete"
    assert LOG_RETENTION_MS.format(None) is None


def test_password_is_never_shown() -> None:
    assert SECRET.sensitive
    assert SECRET.parse("hunter2") == "hunter2"
    assert SECRET.format("hunter2") is None


def test_required_setting_has_no_default() -> None:
    with pytest.raises(InvalidSettingError, match=r"node\.id"):
        NODE_ID.default_value()
