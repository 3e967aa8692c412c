"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, and from then on only
what changes.

Owns which sessions there are, their epochs, and their bound: when all places are taken, one that
was idle for long makes room, or there is no new session, and the fetcher goes on without.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock import limits
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.fetch_interest import NO_REPLICA, Interest
from penstock.world import Rng

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST = 2**31 - 1


class Session:
    """`epoch` is the one that its next request must have."""

    __slots__ = ("epoch", "id", "interest", "last_used", "size")

    def __init__(self, session_id: int, interest: Interest, now: float) -> None:
        self.id = session_id
        self.interest = interest
        self.epoch = 1
        self.last_used = now
        self.size = len(interest.partitions)


class FetchSessions:
    """Those of one node, the least recently used first. `now` is in seconds of a clock that never
    goes back."""

    def __init__(
        self,
        rng: Rng,
        *,
        slots: int = limits.MAX_FETCH_SESSIONS,
        max_partitions: int = limits.MAX_FETCH_SESSION_PARTITIONS,
    ) -> None:
        self._rng = rng
        self._slots = slots
        self._max_partitions = max_partitions
        self._partitions = 0
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._followers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, interest: Interest, now: float) -> Session | None:
        """None where there is no room."""
        size = len(interest.partitions)
        while len(self._sessions) >= self._slots or self._partitions + size > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used <= limits.FETCH_SESSION_IDLE_SECONDS:
                return None
            self.close(oldest.id)
        session = Session(self._new_id(), interest, now)
        if interest.replica_id != NO_REPLICA:
            # A follower has one: that of a connection it lost would be told of every append.
            self.close(self._followers.get(interest.replica_id, NO_SESSION))
            self._followers[interest.replica_id] = session.id
        self._sessions[session.id] = session
        self._partitions += size
        return session

    def resume(
        self, session_id: int, epoch: int, uses_ids: bool, now: float, replica_id: int = NO_REPLICA
    ) -> Session:
        """The session that an incremental fetch goes on with; its next epoch is due from here
        on."""
        session = self._sessions.get(session_id)
        if session is None or session.interest.replica_id != replica_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"there is no fetch session {session_id}: it was closed, or had to make room",
            )
        if session.epoch != epoch:
            message = f"fetch session {session_id} is at epoch {session.epoch}, and not at {epoch}"
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        if session.interest.uses_ids != uses_ids:
            message = (
                f"fetch session {session_id} names topics by "
                f"{'id' if session.interest.uses_ids else 'name'}: begin a new one"
            )
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, message)
        session.epoch = 1 if epoch == _LAST else epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session

    def resized(self, session: Session) -> None:
        """Its partitions were changed. One that then has too many is closed: its fetcher begins
        anew."""
        self._partitions += len(session.interest.partitions) - session.size
        session.size = len(session.interest.partitions)
        if self._partitions > self._max_partitions:
            self.close(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.id} is closed: too many partitions",
            )

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.size
            session.interest.close()

    def _new_id(self) -> int:
        while (candidate := self._rng.randrange(_LAST) + 1) in self._sessions:
            continue
        return candidate
