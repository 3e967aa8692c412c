"""What is done about data that should be read and is gone: an error, or a warning for each where
failOnDataLoss is false."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.spark.source.offsets import DataLoss

log = logging.getLogger("penstock.spark")

_MOST_SHOWN = 20


class DataLossError(RuntimeError):
    """Says topic, partition and offsets of what is gone."""


def report(losses: Sequence[DataLoss], *, fail: bool) -> None:
    if not losses:
        return
    shown = [str(one) for one in losses[:_MOST_SHOWN]]
    if len(losses) > _MOST_SHOWN:
        shown.append(f"and {len(losses) - _MOST_SHOWN} more")
    if fail:
        advice = (
            "Set failOnDataLoss to false to go on with what there is, or begin elsewhere: "
            "with other offsets or another checkpoint"
        )
        raise DataLossError(
            "\n  ".join(["data is gone, and failOnDataLoss is true:", *shown]) + f"\n{advice}"
        )
    for line in shown:
        log.warning("data is gone: %s", line)
