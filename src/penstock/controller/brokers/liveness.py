"""When each broker was last heard of, and how far it has come. PURE: times come in.

What the active controller knows of brokers besides the image; it is not in the log, and a new
active controller begins afresh: every broker that the image has as unfenced gets a whole session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NOT_HEARD_OF = -1


@dataclass(slots=True)
class _Contact:
    epoch: int
    last: float


@dataclass(slots=True)
class _Progress:
    epoch: int
    # Up to where the broker has applied the metadata.
    applied: int = NOT_HEARD_OF
    # The offset by which everything that the broker led had moved away; None unless it is shutting
    # down.
    leaves_at: int | None = None


class Heartbeats:
    """`touch` for each sign of life. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._contacts: dict[int, _Contact] = {}
        self._progress: dict[int, _Progress] = {}

    def touch(self, broker_id: int, epoch: int, now: float) -> None:
        """A broker's next life begins anew; what its last one still had under way says nothing."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.epoch < epoch:
            self._contacts[broker_id] = _Contact(epoch, now)
        elif contact.epoch == epoch:
            contact.last = now

    def forget(self, broker_id: int) -> None:
        """The broker is fenced or unregistered: it has no session that could end."""
        self._contacts.pop(broker_id, None)
        self._progress.pop(broker_id, None)

    def expired(self, now: float, session_timeout: float) -> list[int]:
        """Those that were silent for too long, the one that was silent longest first."""
        late = [
            (contact.last, broker_id)
            for broker_id, contact in self._contacts.items()
            if contact.last + session_timeout < now
        ]
        return [broker_id for _last, broker_id in sorted(late)]

    def next_deadline(self, session_timeout: float) -> float | None:
        """When a session ends if nothing more is heard; None without sessions."""
        return min(
            (contact.last + session_timeout for contact in self._contacts.values()), default=None
        )

    def has_session(self, broker_id: int, now: float, session_timeout: float) -> bool:
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.last + session_timeout >= now

    def heard_since(self, broker_id: int, since: float) -> bool:
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.last > since

    # Controlled shutdown

    def note_applied(self, broker_id: int, epoch: int, offset: int) -> None:
        """The broker has applied the metadata up to `offset`: it says so in heartbeats, and shows
        it by what it fetches."""
        progress = self._of(broker_id, epoch)
        progress.applied = max(progress.applied, offset)

    def lowest_applied(self, broker_ids: Iterable[int]) -> int | None:
        """How far the slowest of these has come; None where there are none."""
        return min(
            (
                self._progress[one].applied if one in self._progress else NOT_HEARD_OF
                for one in broker_ids
            ),
            default=None,
        )

    def note_leaving(self, broker_id: int, epoch: int, offset: int) -> None:
        """The broker began its controlled shutdown; the first word on it counts."""
        progress = self._of(broker_id, epoch)
        if progress.leaves_at is None:
            progress.leaves_at = offset

    def leaves_at(self, broker_id: int, epoch: int) -> int | None:
        return self._of(broker_id, epoch).leaves_at

    def _of(self, broker_id: int, epoch: int) -> _Progress:
        """That of another life does not count. Callers know the epoch to be the registered one."""
        progress = self._progress.get(broker_id)
        if progress is None or progress.epoch != epoch:
            progress = self._progress[broker_id] = _Progress(epoch)
        return progress
