"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, and later requests and
responses have only the changes.

The number of sessions and of their partitions is bounded. When all slots are taken, a session that
has been idle for long is evicted; if there is none, the fetcher gets no session and names all
partitions in each request.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock import limits
from penstock.errors import ErrorCode, KafkaError
from penstock.node.fetch.state import CONSUMER_ID, FetchState
from penstock.world import Rng

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_INT32 = 2**31 - 1


class FetchSession:
    """`epoch` is the one that the next request must have."""

    __slots__ = ("epoch", "id", "last_used", "size", "state")

    def __init__(self, session_id: int, state: FetchState, now: float) -> None:
        self.id = session_id
        self.state = state
        self.epoch = 1
        self.last_used = now
        self.size = len(state.partitions)


class FetchSessions:
    """The sessions of one node, the least recently used first. `now` is in seconds of the monotonic
    clock."""

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
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._followers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, state: FetchState, now: float) -> FetchSession | None:
        """Return a new session, or None if there is no room."""
        size = len(state.partitions)
        while len(self._sessions) >= self._slots or self._partitions + size > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used <= limits.FETCH_SESSION_IDLE_SECONDS:
                return None
            self.close(oldest.id)
        session = FetchSession(self._new_id(), state, now)
        if state.replica_id != CONSUMER_ID:
            # A follower has one session. That of its last connection would be notified of every
            # append.
            self.close(self._followers.get(state.replica_id, NO_SESSION))
            self._followers[state.replica_id] = session.id
        self._sessions[session.id] = session
        self._partitions += size
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        now: float,
        replica_id: int = CONSUMER_ID,
    ) -> FetchSession:
        """Return the session of an incremental fetch and expect its next epoch from now on."""
        session = self._sessions.get(session_id)
        if session is None or session.state.replica_id != replica_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session_id} does not exist: it was closed or evicted",
            )
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
            )
        if session.state.uses_topic_ids != uses_topic_ids:
            naming = "id" if session.state.uses_topic_ids else "name"
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} names topics by {naming}: open a new session",
            )
        session.epoch = 1 if epoch == _MAX_INT32 else epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session

    def resized(self, session: FetchSession) -> None:
        """Count the session's partitions again after a change. If there are too many, close the
        session; its fetcher opens a new one."""
        self._partitions += len(session.state.partitions) - session.size
        session.size = len(session.state.partitions)
        if self._partitions > self._max_partitions:
            self.close(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.id} was closed: too many partitions",
            )

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.size
            session.state.close()

    def _new_id(self) -> int:
        while (candidate := self._rng.randrange(_MAX_INT32) + 1) in self._sessions:
            continue
        return candidate
