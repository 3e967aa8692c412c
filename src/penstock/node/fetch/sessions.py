"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, and later requests and
responses have only the changes.

The sessions of consumers and their partitions are bounded. When all slots are taken, a session that
has been idle for long is evicted; if there is none, the consumer gets no session and names all
partitions in each request. A follower always gets a session, and has one at a time: the cluster's
metadata bounds the followers and their partitions. The caller has checked that the fetcher is the
follower that it names.
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
        # The partitions of the consumers' sessions.
        self._partitions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # Replica id -> session id.
        self._followers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, state: FetchState, now: float) -> FetchSession | None:
        """Return a new session, or None if there is no room."""
        if state.replica_id != CONSUMER_ID:
            self._close_followers(state.replica_id, now)
        elif not self._make_room(len(state.partitions), now):
            return None
        session = FetchSession(self._new_id(), state, now)
        if state.replica_id == CONSUMER_ID:
            self._partitions += session.size
        else:
            self._followers[state.replica_id] = session.id
        self._sessions[session.id] = session
        return session

    def _make_room(self, partitions: int, now: float) -> bool:
        """Evict idle consumers until another one with so many partitions fits."""
        while (
            len(self._sessions) - len(self._followers) >= self._slots
            or self._partitions + partitions > self._max_partitions
        ):
            oldest = next(
                (
                    session
                    for session in self._sessions.values()
                    if session.state.replica_id == CONSUMER_ID
                ),
                None,
            )
            if oldest is None or not _is_idle(oldest, now):
                return False
            self.close(oldest.id)
        return True

    def _close_followers(self, replica_id: int, now: float) -> None:
        """Close the session of a follower's last connection, and those of followers that fetch no
        more. They would be notified of every append."""
        for replica, session_id in list(self._followers.items()):
            if replica == replica_id or _is_idle(self._sessions[session_id], now):
                self.close(session_id)

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
        """Count a consumer's partitions again after a change. If there are too many, close the
        session; the consumer opens a new one."""
        if session.state.replica_id != CONSUMER_ID:
            return
        self._partitions += len(session.state.partitions) - session.size
        session.size = len(session.state.partitions)
        if self._partitions > self._max_partitions:
            self.close(session.id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch session {session.id} was closed: too many partitions",
            )

    def end(self, session_id: int, replica_id: int) -> None:
        """Close a session that its fetcher gives up. A session of another fetcher stays."""
        session = self._sessions.get(session_id)
        if session is not None and session.state.replica_id == replica_id:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        replica_id = session.state.replica_id
        if replica_id == CONSUMER_ID:
            self._partitions -= session.size
        else:
            del self._followers[replica_id]
        session.state.close()

    def _new_id(self) -> int:
        while (candidate := self._rng.randrange(_MAX_INT32) + 1) in self._sessions:
            continue
        return candidate


def _is_idle(session: FetchSession, now: float) -> bool:
    return now - session.last_used > limits.FETCH_SESSION_IDLE_SECONDS
