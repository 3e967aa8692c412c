"""The shape of every decision of the controller. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


# No slots: a subscripted call, Decision[X](...), makes typing set an attribute, which a frozen
# class with slots refuses on Python 3.11.
@dataclass(frozen=True)
class Decision(Generic[R]):
    """Records to append, all or none, and what to answer once they are committed. Without records
    the answer can leave at once.

    `notes` are lines for the log of the node that decides: this room writes none itself.
    """

    records: tuple[object, ...]
    response: R
    notes: tuple[str, ...] = ()
