"""The age of a record on another broker is estimated from the end offsets that were seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.ids import TopicPartition
from penstock.limits import REMEMBERED_END_OFFSETS
from penstock.node.metrics.remote_offsets import RemoteOffsets

NAME = TopicPartition("topic", 0)


class Clock:
    ms = 0

    def now_ms(self) -> int:
        return self.ms


def seen(*ends: tuple[int, int]) -> tuple[RemoteOffsets, Clock]:
    """Return the offsets after scrapes at these times in seconds, with these end offsets."""
    clock = Clock()
    world: Any = SimpleNamespace(clock=clock)
    metadata: Any = None
    remote = RemoteOffsets(world, 1, metadata)
    for at_s, end in ends:
        clock.ms = at_s * 1000
        remote._remember(NAME, end, clock.ms)
    return remote, clock


@pytest.mark.parametrize(
    ("offset", "age_s"),
    [
        (20, 60.0),  # before the first scrape: at least since then
        (100, 50.0),  # the end at 40 s was still 100, and 200 at 50 s
        (150, 45.0),  # between the scrapes at 40 s and at 50 s
        (199, 40.1),
        (200, None),  # not appended yet
    ],
)
def test_the_age_is_interpolated_between_scrapes(offset: int, age_s: float | None) -> None:
    remote, clock = seen((30, 100), (40, 100), (50, 200))
    clock.ms = 90_000
    assert remote.age_s(NAME, offset) == (None if age_s is None else pytest.approx(age_s))


def test_a_log_that_became_shorter_is_another_log() -> None:
    remote, clock = seen((10, 100), (20, 50))
    clock.ms = 25_000
    assert remote.age_s(NAME, 49) == 5.0
    assert remote.age_s(NAME, 60) is None


def test_what_is_remembered_is_bounded() -> None:
    remote, _clock = seen(*((number, number) for number in range(1, 1_000)))
    assert len(remote._seen[NAME]) == REMEMBERED_END_OFFSETS


def test_an_unknown_partition_has_no_age() -> None:
    remote, _clock = seen()
    assert remote.age_s(NAME, 0) is None
