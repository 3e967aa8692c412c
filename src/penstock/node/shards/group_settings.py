"""What the node's settings say of groups, as their coordinator wants it."""

from __future__ import annotations

from penstock.config import group_settings as group
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.coordinator.groups.settings import GroupSettings

_MINUTE_MS = 60_000


def group_settings(values: DynamicBrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=values[group.GROUP_MIN_SESSION_TIMEOUT_MS],
        max_session_timeout_ms=values[group.GROUP_MAX_SESSION_TIMEOUT_MS],
        max_size=values[group.GROUP_MAX_SIZE],
        initial_rebalance_delay_ms=values[group.GROUP_INITIAL_REBALANCE_DELAY_MS],
        consumer_session_timeout_ms=values[group.CONSUMER_SESSION_TIMEOUT_MS],
        consumer_min_session_timeout_ms=values[group.CONSUMER_MIN_SESSION_TIMEOUT_MS],
        consumer_max_session_timeout_ms=values[group.CONSUMER_MAX_SESSION_TIMEOUT_MS],
        consumer_heartbeat_interval_ms=values[group.CONSUMER_HEARTBEAT_INTERVAL_MS],
        consumer_min_heartbeat_interval_ms=values[group.CONSUMER_MIN_HEARTBEAT_INTERVAL_MS],
        consumer_max_heartbeat_interval_ms=values[group.CONSUMER_MAX_HEARTBEAT_INTERVAL_MS],
        consumer_assignment_interval_ms=values[group.CONSUMER_ASSIGNMENT_INTERVAL_MS],
        consumer_min_assignment_interval_ms=values[group.CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS],
        consumer_max_assignment_interval_ms=values[group.CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS],
        consumer_max_size=values[group.CONSUMER_MAX_SIZE],
        consumer_assignors=values[group.CONSUMER_ASSIGNORS],
        consumer_migration_policy=values[group.CONSUMER_MIGRATION_POLICY].lower(),
        consumer_regex_refresh_interval_ms=values[group.CONSUMER_REGEX_REFRESH_INTERVAL_MS],
        offset_metadata_max_bytes=values[group.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=values[group.OFFSETS_RETENTION_MINUTES] * _MINUTE_MS,
        offsets_retention_check_interval_ms=values[group.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
    )
