"""Jumps of the wall clock are logged, with their direction and length."""

from __future__ import annotations

import pytest

from penstock.server.clock_jumps import ClockJumps


class Hands:
    """Two clocks that the test moves."""

    def __init__(self) -> None:
        self.monotonic_s, self.wall_ms = 5.0, 1_700_000_000_000

    def monotonic(self) -> float:
        return self.monotonic_s

    def now_ms(self) -> int:
        return self.wall_ms

    def move(self, seconds: float, jump_s: float = 0.0) -> None:
        self.monotonic_s += seconds
        self.wall_ms += int((seconds + jump_s) * 1000)


@pytest.mark.parametrize(
    ("jump_s", "line"),
    [(3600.0, "forwards by 3600 s"), (-90.0, "backwards by 90 s"), (1.0, "forwards by 1 s")],
)
def test_a_jump_is_logged_once(caplog: pytest.LogCaptureFixture, jump_s: float, line: str) -> None:
    hands = Hands()
    jumps = ClockJumps(hands)
    for jump in (0.0, jump_s, 0.0, 0.0):
        hands.move(2.0, jump)
        jumps.check()
    assert caplog.text.count("the wall clock jumped") == 1
    assert line in caplog.text


def test_time_that_passes_is_no_jump(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    jumps = ClockJumps(hands)
    for seconds in (0.01, 1.0, 500.0, 0.3, 86_400.0):
        hands.move(seconds, 0.4)
        jumps.check()
    assert caplog.text == ""


def test_a_jump_between_two_checks_of_a_second_is_found_by_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hands = Hands()
    jumps = ClockJumps(hands)
    hands.move(0.5, 10.0)
    jumps.check()
    assert caplog.text == ""
    hands.move(0.6)
    jumps.check()
    assert "forwards by 10 s" in caplog.text
