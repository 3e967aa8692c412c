"""AlterPartition: a partition leader asks the controller to change the set of in-sync replicas."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int8, int16, int32, int64, message, struct, uuid


@message(api_key=56, versions="2-3", flexible="2+")
class AlterPartitionRequest:
    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class NewIsrWithEpoch:
                broker_id: int = int32("3+")
                broker_epoch: int = int64("3+", default=-1)

            partition_index: int = int32("2+")
            leader_epoch: int = int32("2+")
            new_isr: tuple[int, ...] = array(int32, "2")
            new_isr_with_epochs: tuple[NewIsrWithEpoch, ...] = array(NewIsrWithEpoch, "3+")
            leader_recovery_state: int = int8("2+")
            partition_epoch: int = int32("2+")

        topic_id: UUID = uuid("2+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    broker_id: int = int32("2+")
    broker_epoch: int = int64("2+", default=-1)
    topics: tuple[Topic, ...] = array(Topic, "2+")


@message(api_key=56, versions="2-3", flexible="2+")
class AlterPartitionResponse:
    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: int = int32("2+")
            error_code: int = int16("2+")
            leader_id: int = int32("2+")
            leader_epoch: int = int32("2+")
            isr: tuple[int, ...] = array(int32, "2+")
            leader_recovery_state: int = int8("2+", ignorable=True)
            partition_epoch: int = int32("2+")

        topic_id: UUID = uuid("2+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "2+")

    throttle_time_ms: int = int32("2+")
    error_code: int = int16("2+")
    topics: tuple[Topic, ...] = array(Topic, "2+")
