"""The fetch service of a node: what `handlers/fetch.py` delegates to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.errors import ErrorCode, KafkaError
from penstock.node.delayed import ActionQueue
from penstock.node.fetch.delayed import DelayedFetch, Respond
from penstock.node.fetch.reader import FetchParams
from penstock.node.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchSessions
from penstock.node.fetch.state import CONSUMER_ID, FetchState, Key
from penstock.node.supervisor import Spawn
from penstock.replica.fencing import is_current
from penstock.world import World

if TYPE_CHECKING:
    from penstock.node.fetch.state import RequestedPartition
    from penstock.node.metadata import MetadataView
    from penstock.node.replication.replicas import Replicas
    from penstock.protocol.messages.fetch import FetchResponse

logger = logging.getLogger(__name__)


class Fetches:
    def __init__(
        self,
        world: World,
        metadata: MetadataView,
        replicas: Replicas,
        actions: ActionQueue,
        spawn: Spawn,
    ) -> None:
        self.clock = world.clock
        self.metadata = metadata
        self.replicas = replicas
        self.actions = actions
        self.sessions = FetchSessions(world.rng)
        # Fetches that wait.
        self.delayed_count = 0
        self._offload = world.offload
        self._spawn = spawn

    def fetch(
        self,
        params: FetchParams,
        session_id: int,
        session_epoch: int,
        requested: Iterable[tuple[Key, RequestedPartition]],
        forgotten: Iterable[Key],
        respond: Respond,
        *,
        uses_topic_ids: bool,
    ) -> FetchResponse | DelayedFetch:
        """Return the response, or a delayed one. KafkaError if the request does not fit its
        session."""
        is_incremental = session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        is_verified = self.is_verified(params)
        session: FetchSession | None = None
        if is_verified and params.replica_id != CONSUMER_ID:
            self.replicas.fetched_at[params.replica_id] = self.clock.monotonic()
        if is_incremental:
            if not is_verified:
                raise KafkaError(
                    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                    f"broker {params.replica_id} has no fetch session in broker epoch "
                    f"{params.broker_epoch}",
                )
            session = self.sessions.resume(
                session_id, session_epoch, uses_topic_ids, self.clock.monotonic(), params.replica_id
            )
            state = session.state
        else:
            if session_id and is_verified:
                self.sessions.end(session_id, params.replica_id)
            state = FetchState(uses_topic_ids, params.replica_id)
        for key in forgotten:
            state.forget(key)
        for key, partition in requested:
            state.request(key, partition)
        if session is None:
            if session_epoch == INITIAL_EPOCH and state.partitions and is_verified:
                session = self.sessions.open(state, self.clock.monotonic())
        elif state.partitions:
            self.sessions.resized(session)
        else:
            self.sessions.close(session.id)
            session = None
        return DelayedFetch(
            self, params, state, session, respond, is_incremental=is_incremental
        ).start()

    @property
    def is_throttled(self) -> bool:
        """True while the followers of throttled partitions must wait (KIP-73)."""
        return self.replicas.throttles.leader.is_exceeded(self.clock.monotonic())

    def is_verified(self, params: FetchParams) -> bool:
        """Return True for consumers, and for brokers in their current epoch. Any other client that
        names a replica opens, changes and closes no session; the reader refuses its partitions."""
        return params.replica_id == CONSUMER_ID or is_current(
            self.metadata.image.brokers, params.replica_id, params.broker_epoch
        )

    def warm(self, state: FetchState) -> None:
        """Read the cold partitions of a fetch into memory in a thread. Those that come up during
        the read wait for the next one: a fetch must not occupy all threads."""
        if not state.is_warming:
            state.is_warming = True
            self._spawn(self._warm(state))

    async def _warm(self, state: FetchState) -> None:
        try:
            while state.cold:
                cold = dict(state.cold)
                calls = tuple(call for _offset, call in cold.values())
                await self._offload.read(_call_all, calls)
                with self.actions:
                    for key, (offset, _call) in cold.items():
                        del state.cold[key]
                        if key in state.partitions:
                            state.warmed[key] = offset
                            state.mark_due(key)
        finally:
            state.is_warming = False


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Run calls that read records into memory. One that fails must not leave the fetch without a
    response: the fetch then reads the records itself, and its response has the error."""
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception("a thread could not read records into memory for a fetch")
