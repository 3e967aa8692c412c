"""Runs random walks, and shortens the ones that fail.

A walk is a list of numbers that a seed determines: the first draws the walk's shape, each other is
one turn. All random choices of a turn derive from its number. So turns can be left out of a walk
that fails, and the remaining ones still run: `shorten` finds a short walk that fails in the same
way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.sim.harness import InvariantViolated

# Turns are left out of a failing walk for at most this many tries.
_TRIES = 400
_SHOWN_LINES = 60

_MASK = (1 << 64) - 1


class Choices:
    """The random choices of the current turn: a linear congruential generator, since seeding
    `random.Random` for each turn would take longer than the turn."""

    __slots__ = ("_state",)

    def __init__(self, turn: int) -> None:
        self._state = turn

    def begin(self, turn: int) -> None:
        self._state = turn

    def below(self, bound: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self._state >> 33) % bound

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        return self.below(1 << 20) / (1 << 20)


class LawBroken(Exception):
    """A law does not hold. `law` names it: two walks fail in the same way if they break the same
    law."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


class Walk(Protocol):
    """One walk in progress. `lines` is None unless a transcript is written."""

    lines: list[str] | None

    def turn(self) -> None:
        """Make one turn. Raises LawBroken."""

    def end(self) -> None:
        """End all faults, and check that the machines recover. Raises LawBroken."""

    def counts(self) -> dict[str, int]:
        """Return what the walk did: a walk that commits nothing proves nothing."""

    def close(self) -> None:
        """The walk is over, perhaps in the middle of something."""


class Explorer(NamedTuple):
    """`begin` starts a walk; it draws the walk's shape from the choices."""

    name: str
    turns: int
    begin: Callable[[Choices], Walk]


def explore(explorer: Explorer, seed: int) -> Counter[str]:
    """Run the walk of one seed and return its counts. Raises InvariantViolated."""
    turns = turns_of(explorer, seed)
    failure, walk = run_walk(explorer, turns)
    if failure is None:
        return Counter(walk.counts())
    raise InvariantViolated(_failure_report(explorer, seed, turns, failure)) from failure


def turns_of(explorer: Explorer, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(64) for _ in range(explorer.turns + 1)]


def run_walk(
    explorer: Explorer, turns: Sequence[int], lines: list[str] | None = None
) -> tuple[Exception | None, Walk]:
    """Run a walk. Return what ended it early, or None."""
    choices = Choices(turns[0])
    walk = explorer.begin(choices)
    walk.lines = lines
    try:
        for number in turns[1:]:
            choices.begin(number)
            walk.turn()
        choices.begin(turns[0])
        walk.end()
    except Exception as error:  # noqa: BLE001 - an exception of the machine is a finding too
        return error, walk
    finally:
        walk.close()
    return None, walk


def _law(error: Exception | None) -> str | None:
    if error is None:
        return None
    return error.law if isinstance(error, LawBroken) else type(error).__name__


def shorten(explorer: Explorer, turns: Sequence[int], failure: Exception) -> list[int]:
    """Return some of the turns that break the same law. Leaves out halves, then quarters and so on,
    until no turn can be left out or the tries are used up."""
    law, shortest, size, tries = _law(failure), list(turns), len(turns) // 2, 0
    while size and tries < _TRIES:
        first = 1
        while first < len(shortest) and tries < _TRIES:
            candidate = shortest[:first] + shortest[first + size :]
            tries += 1
            if _law(run_walk(explorer, candidate)[0]) == law:
                shortest = candidate
            else:
                first += size
        size //= 2
    return shortest


def _failure_report(explorer: Explorer, seed: int, turns: Sequence[int], failure: Exception) -> str:
    shortest = shorten(explorer, turns, failure)
    lines: list[str] = []
    failure = run_walk(explorer, shortest, lines)[0] or failure
    text = str(failure) if isinstance(failure, LawBroken) else repr(failure)
    left_out = max(0, len(lines) - _SHOWN_LINES)
    return "\n".join(
        [
            f"{explorer.name} explorer, seed {seed}: {text}",
            f"{len(turns) - 1} turns, shortened to {len(shortest) - 1}:",
            *([f"  ({left_out} lines left out)"] if left_out else []),
            *(f"  {line}" for line in lines[left_out:]),
            f"repeat with: python -m penstock.sim --explore {explorer.name} --seed {seed}",
        ]
    )
