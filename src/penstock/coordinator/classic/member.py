"""One member of a classic group. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.coordinator.runtime.step import Ticket


class Protocol(NamedTuple):
    """A way of assigning that a member knows, with what it says to the leader in it (a
    subscription, say)."""

    name: str
    metadata: bytes


class Parked(NamedTuple):
    """A request that waits for the rest of the group, and the version its answer must be put in."""

    ticket: Ticket
    version: int


@dataclass(slots=True)
class ClassicMember:
    """Changed in place by its group alone."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    # Has not been in a generation yet: its client may have gone while it waits, so that waiting
    # does not keep it alive.
    is_new: bool = False
    joining: Parked | None = None
    syncing: Parked | None = None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first that it named, of those that all members know."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_kept_alive(self) -> bool:
        """Whether it need not send heartbeats: it waits for us."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)
