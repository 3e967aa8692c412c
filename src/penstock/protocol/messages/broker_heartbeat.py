"""BrokerHeartbeat: a broker reports to the controller that it is alive, how far it has replayed the
metadata, and whether it wants to shut down."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, boolean, int16, int32, int64, message, uuid


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: tuple[UUID, ...] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(
        uuid, "2+", nullable="2+", tag=1, default=None
    )


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
