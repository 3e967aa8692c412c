"""One follower as its leader knows it: how far it has come, and when it last had everything.
PURE."""

from __future__ import annotations

from penstock.ids import UNKNOWN_OFFSET

UNKNOWN_EPOCH = -1


class Progress:
    """Nothing is known until the follower's first fetch in this leader epoch. Times are in seconds
    of a clock that never goes back."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "end_offset",
        "fetched_at",
        "leader_end_then",
        "replica_id",
        "start_offset",
    )

    def __init__(self, replica_id: int, caught_up_at: float) -> None:
        self.replica_id = replica_id
        self.caught_up_at = caught_up_at
        self.forget()

    def forget(self) -> None:
        """What it had told is no longer true: it may have lost some of it."""
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.leader_end_then = UNKNOWN_OFFSET
        self.fetched_at = self.caught_up_at

    def fetched(
        self, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now: float
    ) -> None:
        """A fetch from an offset acknowledges everything before it. A follower that asks for what
        was the end at its last fetch had everything then: under steady load it never asks for what
        is the end now."""
        if offset >= leader_end:
            self.caught_up_at = now
        elif offset >= self.leader_end_then != UNKNOWN_OFFSET:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.leader_end_then = leader_end
        self.fetched_at = now
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
