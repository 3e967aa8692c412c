"""From what the options say of a read's beginning or end to an offset for each partition. Pure;
what must be asked of the cluster first is said by `times_of`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.client.offsets import EARLIEST
from penstock.ids import TopicPartition
from penstock.spark.option_values import OptionError
from penstock.spark.source.offsets import DataLoss, Snapshot
from penstock.spark.source.positions import LATEST, AtOffsets, AtTimes, Position

NO_SUCH_TIME = -1


def times_of(
    position: Position, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The times whose offsets must be known."""
    if not isinstance(position, AtTimes):
        return {}
    if isinstance(position.times, int):
        return dict.fromkeys(partitions, position.times)
    _check_all(position.option, position.times, partitions)
    return dict(position.times)


def resolve(
    position: Position,
    option: str,
    now: Snapshot,
    found: Mapping[TopicPartition, int],
    *,
    starting: bool,
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    """`found` has the offsets of the times, NO_SUCH_TIME where no record is so young."""
    if isinstance(position, AtTimes):
        return {one: _at_time(position, one, at, now, starting) for one, at in found.items()}, []
    if isinstance(position, AtOffsets):
        _check_all(option, position.offsets, now.latest)
        return _within(option, position.offsets, now)
    return dict(now.earliest if position == EARLIEST else now.latest), []


def _at_time(position: AtTimes, one: TopicPartition, at: int, now: Snapshot, starting: bool) -> int:
    if at != NO_SUCH_TIME:
        return at
    if starting and not position.or_latest:
        raise OptionError(
            f"{position.option}: {one} has no record that young. Set "
            "startingOffsetsByTimestampStrategy to latest "
            "to begin such partitions at their end, or give an earlier time"
        )
    return now.latest[one]


def _within(
    option: str, offsets: Mapping[TopicPartition, int], now: Snapshot
) -> tuple[dict[TopicPartition, int], list[DataLoss]]:
    found: dict[TopicPartition, int] = {}
    losses = []
    for one, asked in offsets.items():
        earliest, latest = now.earliest[one], now.latest[one]
        at = {EARLIEST: earliest, LATEST: latest}.get(asked, asked)
        found[one] = min(max(at, earliest), latest)
        if found[one] != at:
            start, end = sorted((at, found[one]))
            losses.append(
                DataLoss(
                    one,
                    start,
                    end,
                    (
                        f"{option} says {at}, and the log has offsets {earliest} to {latest} "
                        "(exclusive)"
                    ),
                )
            )
    return found, losses


def _check_all(
    option: str, named: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(named))
    unknown = sorted(set(named) - set(partitions))
    if missing:
        raise OptionError(
            f"{option} does not name {_list(missing)}: name all partitions that are read (-2 is "
            "earliest, -1 is latest)"
        )
    if unknown:
        raise OptionError(
            f"{option} names {_list(unknown)}, which is not among the partitions that are read: "
            "leave it out"
        )


def _list(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(str(one) for one in partitions[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"
