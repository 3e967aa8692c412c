"""Reports records that a query should read but that no longer exist (failOnDataLoss)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ids import TopicPartition

logger = logging.getLogger("penstock.spark")

RECREATED = "the topic was deleted and created again"

_MAX_REPORTED = 20


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Offsets from start to end (exclusive) that cannot be read. An end of None is unknown."""

    partition: TopicPartition
    start: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        offsets = f"from {self.start} on" if self.end is None else f"{self.start} to {self.end - 1}"
        return f"{self.partition}: offsets {offsets} cannot be read: {self.reason}"


class DataLossError(RuntimeError):
    """Names topic, partition and offsets of the lost records."""


def report_data_loss(losses: Sequence[DataLoss], *, fail: bool) -> None:
    """Raise DataLossError if `fail` (the option failOnDataLoss); log a warning per loss
    otherwise."""
    if not losses:
        return
    lines = [str(loss) for loss in losses[:_MAX_REPORTED]]
    if len(losses) > _MAX_REPORTED:
        lines.append(f"and {len(losses) - _MAX_REPORTED} more")
    if fail:
        advice = (
            "To continue with the records that exist, set failOnDataLoss to false; otherwise "
            "start from other offsets or with a new checkpoint"
        )
        raise DataLossError(
            "\n  ".join(["data was lost, and failOnDataLoss is true:", *lines]) + f"\n{advice}"
        )
    for line in lines:
        logger.warning("data was lost, the query continues: %s", line)


def log_start_moved(partition: TopicPartition, start: int, end: int, earliest: int) -> DataLoss:
    reason = f"the log starts at offset {earliest}; retention or DeleteRecords removed them"
    return DataLoss(partition, start, end, reason)
