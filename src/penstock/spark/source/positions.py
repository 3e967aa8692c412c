"""Where a read begins or ends, as its options say it: at an edge, at offsets, or at times. Pure;
`offsets` makes offsets of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.offsets import EARLIEST, LATEST
from penstock.ids import TopicPartition
from penstock.spark.option_values import OptionError, per_partition, whole

__all__ = ["EARLIEST", "LATEST", "AtOffsets", "AtTimes", "Position", "at_times", "position"]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset may be EARLIEST or LATEST too."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record that is not older, in milliseconds: one time for each partition, or one for
    all. Where there is no such record a read begins at the end if `or_latest`, and it is an error
    otherwise; a read that ends by a time ends at the end."""

    times: Mapping[TopicPartition, int] | int
    or_latest: bool
    option: str


Position = int | AtOffsets | AtTimes


def position(given: Mapping[str, str], option: str, *, default: int) -> Position:
    text = given.get(option, "").strip()
    if option not in given:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    if not text.startswith("{"):
        example = '{"orders": {"0": 23, "1": -2}}'
        raise OptionError(
            f"{option} is {text!r}: earliest, latest or offsets like {example} are expected (-2 "
            "is earliest, -1 latest)"
        )
    return AtOffsets(
        per_partition(option, text, least=EARLIEST, example='{"orders": {"0": 23, "1": -2}}')
    )


def at_times(given: Mapping[str, str], for_all: str, for_each: str) -> AtTimes | None:
    """The one for all comes first, as in Spark's source."""
    strategy = given.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is {strategy!r}: error or latest is expected"
        )
    time = whole(given, for_all, least=0)
    if time is not None:
        return AtTimes(time, strategy == "latest", for_all)
    if for_each not in given:
        return None
    example = '{"orders": {"0": 1767225600000}}'
    return AtTimes(
        per_partition(for_each, given[for_each], least=0, example=example),
        strategy == "latest",
        for_each,
    )
