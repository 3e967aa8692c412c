"""The limits of a read from startingOffsets, endingOffsets and their timestamp forms. Pure.

Unlike Spark's own connector, both also take a duration into the past, such as "-10 minutes".

`source.offset_reader` resolves a limit to an offset per partition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.offsets import EARLIEST, LATEST
from penstock.ids import TopicPartition
from penstock.spark.options.values import (
    MAX_INT64,
    OptionError,
    milliseconds_ago,
    number_per_partition,
)

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


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """A time in the past, seen from when the query is planned for the first time: a streaming query
    keeps what it resolved to in its checkpoint."""

    ago_ms: int
    or_latest: bool
    option: str

    def at(self, now_ms: int) -> SpecificTimestamps:
        return SpecificTimestamps(max(now_ms - self.ago_ms, 0), self.or_latest, self.option)


# An int is EARLIEST or LATEST.
OffsetLimit = int | SpecificOffsets | SpecificTimestamps | RelativeTime


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
    relative = _relative(options, option)
    if relative is not None:
        return relative
    if not text.startswith("{"):
        raise OptionError(
            f"{option} is {text!r}, but must be earliest, latest or offsets such as {example} "
            "(-2 is earliest, -1 is latest), or a duration such as -10 minutes"
        )
    return SpecificOffsets(number_per_partition(option, text, minimum=EARLIEST, example=example))


def _relative(options: Mapping[str, str], option: str) -> RelativeTime | None:
    """Partitions without a record that recent are read from their end, unless
    startingOffsetsByTimestampStrategy is set to error."""
    ago_ms = milliseconds_ago(options[option])
    if ago_ms is None:
        return None
    return RelativeTime(ago_ms, _strategy(options, default="latest") == "latest", option)


def _strategy(options: Mapping[str, str], *, default: str) -> str:
    strategy = options.get(_STRATEGY, default).strip().lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{_STRATEGY} is {strategy!r}, but must be error or latest")
    return strategy


def _timestamps(
    options: Mapping[str, str], for_all: str, per_partition: str
) -> SpecificTimestamps | RelativeTime | None:
    """The timestamp for all partitions takes precedence, as in Spark's own connector."""
    strategy = _strategy(options, default="error")
    if for_all in options:
        return _timestamp(options, for_all, strategy)
    if per_partition not in options:
        return None
    timestamps = number_per_partition(
        per_partition,
        options[per_partition],
        minimum=0,
        example='{"orders": {"0": 1767225600000}}',
    )
    return SpecificTimestamps(timestamps, strategy == "latest", per_partition)


def _timestamp(
    options: Mapping[str, str], option: str, strategy: str
) -> SpecificTimestamps | RelativeTime:
    relative = _relative(options, option)
    if relative is not None:
        return relative
    text = options[option].strip()
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise OptionError(
            f"{option} is {options[option]!r}, but must be an integer of at least 0, in "
            "milliseconds since 1970, or a duration such as -10 minutes"
        )
    return SpecificTimestamps(int(text), strategy == "latest", option)


def _contains(limit: OffsetLimit, offset: int) -> bool:
    return offset in (limit.offsets.values() if isinstance(limit, SpecificOffsets) else [limit])
