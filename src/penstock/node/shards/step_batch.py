"""The batch of a shard's step, and whether its partition takes a batch of that size."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.runtime.step import Now, Step
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE
from penstock.node.partition.partition import Partition
from penstock.records.build import build_batch, end_transaction_marker
from penstock.records.compression import Codec


def step_batch(step: Step[Any], now: Now, codec: Codec) -> bytes:
    declared = step.batch
    if declared.marker is not None:
        return end_transaction_marker(
            commit=declared.marker.commit,
            producer_id=declared.producer_id,
            producer_epoch=declared.producer_epoch,
            coordinator_epoch=declared.marker.coordinator_epoch,
            timestamp=now.wall_ms,
        )
    return build_batch(
        [(key, value, (), now.wall_ms) for key, value in step.records],
        codec=codec,
        producer_id=declared.producer_id,
        producer_epoch=declared.producer_epoch,
        # As Kafka's coordinators do, so that the log remembers the producer's last batch.
        base_sequence=0 if declared.transactional else NO_SEQUENCE,
        transactional=declared.transactional,
    )


def check_size(batch: bytes, partition: Partition) -> None:
    """KafkaError: the partition would refuse the batch."""
    config, topic = partition.config, partition.topic_partition.topic
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the request needs a batch of {len(batch)} bytes, and max.message.bytes of {topic} is "
            f"{config.max_message_bytes}",
        )
    if len(batch) > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the request needs a batch of {len(batch)} bytes, and segment.bytes of {topic} is "
            f"{config.segment_bytes}",
        )
