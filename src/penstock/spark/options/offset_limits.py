"""The limits of a read from startingOffsets, endingOffsets and their timestamp forms. Pure.

`source.offset_reader` resolves a limit to an offset per partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.offsets import EARLIEST, LATEST
from penstock.ids import TopicPartition
from penstock.spark.options.values import OptionError, int_option, number_per_partition

ENDING_OPTIONS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STRATEGY = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset per partition; EARLIEST and LATEST are allowed as offsets."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """The first offset whose timestamp (ms) is equal or later: one timestamp per partition, or one
    for all.

    If a partition has no such record, a read starts at the latest offset if `or_latest` and fails
    otherwise; a read that ends at a timestamp always ends at the latest offset.
    """

    timestamps: Mapping[TopicPartition, int] | int
    or_latest: bool
    option: str


# An int is EARLIEST or LATEST.
OffsetLimit = int | SpecificOffsets | SpecificTimestamps


def starting_limit(options: Mapping[str, str], *, streaming: bool) -> OffsetLimit:
    by_timestamp = _timestamps(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_timestamp is not None:
        return by_timestamp
    limit = _offsets(options, "startingOffsets", default=LATEST if streaming else EARLIEST)
    if not streaming and _contains(limit, LATEST):
        raise OptionError(
            "startingOffsets is latest (-1), so this batch query has nothing to read: use earliest"
        )
    return limit


def ending_limit(options: Mapping[str, str], *, streaming: bool) -> OffsetLimit:
    for name in ENDING_OPTIONS:
        if streaming and name in options:
            raise OptionError(
                f"{name} is for batch queries: a streaming query has no end. Remove it, or use "
                "read instead of readStream"
            )
    by_timestamp = _timestamps(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_timestamp is not None:
        return by_timestamp
    limit = _offsets(options, "endingOffsets", default=LATEST)
    if _contains(limit, EARLIEST):
        raise OptionError(
            "endingOffsets is earliest (-2), so this query has nothing to read: use latest"
        )
    return limit


def _offsets(options: Mapping[str, str], option: str, *, default: int) -> OffsetLimit:
    if option not in options:
        return default
    text = options[option].strip()
    example = '{"orders": {"0": 23, "1": -2}}'
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    if not text.startswith("{"):
        raise OptionError(
            f"{option} is {text!r}, but must be earliest, latest or offsets such as {example} "
            "(-2 is earliest, -1 is latest)"
        )
    return SpecificOffsets(number_per_partition(option, text, minimum=EARLIEST, example=example))


def _timestamps(
    options: Mapping[str, str], for_all: str, per_partition: str
) -> SpecificTimestamps | None:
    """The timestamp for all partitions takes precedence, as in Spark's own connector."""
    strategy = options.get(_STRATEGY, "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{_STRATEGY} is {strategy!r}, but must be error or latest")
    timestamp = int_option(options, for_all, minimum=0)
    if timestamp is not None:
        return SpecificTimestamps(timestamp, strategy == "latest", for_all)
    if per_partition not in options:
        return None
    timestamps = number_per_partition(
        per_partition,
        options[per_partition],
        minimum=0,
        example='{"orders": {"0": 1767225600000}}',
    )
    return SpecificTimestamps(timestamps, strategy == "latest", per_partition)


def _contains(limit: OffsetLimit, offset: int) -> bool:
    return offset in (limit.offsets.values() if isinstance(limit, SpecificOffsets) else [limit])
