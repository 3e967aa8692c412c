"""Two systems measured in turn, and the rows of a table that compares them: the ratio first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bench.results import Section, median, spread

OURS, THEIRS = "Penstock", "Apache Kafka"
COLUMNS = ("what", "Penstock / Kafka", OURS, THEIRS, "aim")
P = TypeVar("P")
Figures = dict[str, list[float]]


def in_turn(
    peers: Mapping[str, P], rounds: int, warm_ups: int, measure: Callable[[P], Sequence[float]]
) -> list[Figures]:
    """Each figure that a measurement gives, per peer, of all rounds. The first ones warm up and are
    not counted; who begins alternates."""
    found: dict[str, list[Sequence[float]]] = {name: [] for name in peers}
    for number in range(warm_ups + rounds):
        for name in list(peers) if number % 2 else list(peers)[::-1]:
            figures = measure(peers[name])
            if number >= warm_ups:
                found[name].append(figures)
    width = len(next(iter(found.values()))[0])
    return [
        {name: [figures[column] for figures in all_] for name, all_ in found.items()}
        for column in range(width)
    ]


def row(section: Section, what: str, aim: str, figures: Figures, digits: int = 0) -> None:
    ours, theirs = figures[OURS], figures[THEIRS]
    section.row(
        what, f"**{ratio(ours, theirs)}**", spread(ours, digits), spread(theirs, digits), aim
    )


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Of the medians; one near nothing needs its digits."""
    value = median(ours) / median(theirs)
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
