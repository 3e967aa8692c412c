"""Keys and values of __share_group_state. `coordinator_logs` frames them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int8, int16, int32, int64, message, string, struct, uuid


@message(api_key=0, versions="0")
class ShareSnapshotKey:
    group_id: str = string("0+")
    topic_id: UUID = uuid("0+")
    partition: int = int32("0+")


@message(api_key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    @struct
    class StateBatch:
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=-1)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")


@message(api_key=1, versions="0")
class ShareUpdateKey:
    group_id: str = string("0+")
    topic_id: UUID = uuid("0+")
    partition: int = int32("0+")


@message(api_key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    @struct
    class StateBatch:
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=-1)
    state_batches: tuple[StateBatch, ...] = array(StateBatch, "0+")
