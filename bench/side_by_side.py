"""Measure two systems alternately, and write the rows of a table that compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bench.results import Section, median, spread

OURS, THEIRS = "Penstock", "Apache Kafka"
COLUMNS = ("measurement", "Penstock / Kafka", OURS, THEIRS, "target")
P = TypeVar("P")
# The values of all rounds, by system.
Figures = dict[str, list[float]]


def in_turn(
    peers: Mapping[str, P], rounds: int, warm_ups: int, measure: Callable[[P], Sequence[float]]
) -> list[Figures]:
    """Return the values of each quantity that `measure` returns, without the warm-up rounds.

    The peer that begins alternates.
    """
    rows: dict[str, list[Sequence[float]]] = {name: [] for name in peers}
    for number in range(warm_ups + rounds):
        for name in list(peers) if number % 2 else list(peers)[::-1]:
            values = measure(peers[name])
            if number >= warm_ups:
                rows[name].append(values)
    width = len(next(iter(rows.values()))[0])
    return [
        {name: [values[column] for values in rounds_] for name, rounds_ in rows.items()}
        for column in range(width)
    ]


def row(section: Section, label: str, target: str, figures: Figures, digits: int = 0) -> None:
    ours, theirs = figures[OURS], figures[THEIRS]
    section.row(
        label, f"**{ratio(ours, theirs)}**", spread(ours, digits), spread(theirs, digits), target
    )


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the ratio of the medians, with more digits for small ratios."""
    value = median(ours) / median(theirs)
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def ratio_by_round(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds. Both figures of a round were measured one
    after the other, so that the machine's slow minutes cancel out."""
    return median([one / other for one, other in zip(some, others, strict=True)])
