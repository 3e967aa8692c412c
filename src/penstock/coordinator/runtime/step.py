"""The shape of everything that a shard of the coordinator decides. PURE.

A step's records have been replayed into the shard when it is returned. The shell appends them, all
in one batch and in the same turn of the loop; where that fails the shard is worthless: it is
dropped and read anew from the log. So there is no undo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NewType

# A request that waits for its answer, as the shell numbers it.
Ticket = NewType("Ticket", int)


class Record(NamedTuple):
    """As `__consumer_offsets` has it; without a value it takes the key's former one away."""

    key: bytes
    value: bytes | None


class Answer(NamedTuple):
    ticket: Ticket
    response: object


class Caller(NamedTuple):
    """Who asks, in words that groups are described with, and which version of the request it
    speaks."""

    client_id: str
    client_host: str
    version: int
    # The time of day, for what records keep of it.
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """Answers leave when all that the shard has appended so far is committed; `at_once` where they
    rest on nothing that could be lost.

    `told` are lines for the log of the node: this room writes none itself.
    """

    records: tuple[Record, ...] = ()
    answers: tuple[Answer, ...] = ()
    told: tuple[str, ...] = ()
    at_once: bool = False
