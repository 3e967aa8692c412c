"""The settings of the group machine, as one value. PURE: knows neither files nor the table of
settings."""

from __future__ import annotations

from dataclasses import dataclass

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka's. A field has its setting's name, with the unit last."""

    # group.*: the classic protocol.
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = _INT32_MAX
    initial_rebalance_delay_ms: int = 3_000
    # group.consumer.*: the consumer protocol (KIP-848).
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_max_size: int = _INT32_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    # max.message.bytes of __consumer_offsets: the most that one step may write.
    max_batch_bytes: int = 1_048_588
    # offset.metadata.max.bytes and offsets.*
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
