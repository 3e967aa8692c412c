"""Carries out the effects of the consensus state machine, in order.

The driver delivers an event only after the effects of the last step are done. So no message leaves
before the state that it mentions is on disk, and the machine never sees a log that is about to be
truncated. Effects that take long and that nothing waits for (requests, syncs, snapshot downloads)
run as tasks and come back as events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from penstock.client.connection import API_VERSIONS_REQUEST
from penstock.config.quorum import Address
from penstock.errors import ErrorCode, KafkaError, ProtocolError, invariant
from penstock.limits import FILES_RETRY_S
from penstock.log.directory import TooManyFiles
from penstock.node.quorum.client_rpc import RequestEncoder, decode_response
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.peers import Peers
from penstock.node.quorum.quorum_state_store import QuorumStateStore
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.machine import Raft
from penstock.raft.messages import (
    Appended,
    AppendLeaderChange,
    AppendRecords,
    AppendVoters,
    AskSupportedVersions,
    Commit,
    Effect,
    Event,
    FetchRequest,
    FetchResponse,
    FetchSnapshot,
    InstallSnapshot,
    Request,
    RequestFailed,
    RequestReceived,
    Resign,
    Response,
    ResponseReceived,
    SaveElectionState,
    SendRequest,
    SendResponse,
    SupportedVersionsReceived,
    Sync,
    Synced,
    Tick,
    Truncate,
)
from penstock.raft.voters import KRAFT_VERSION, Voter
from penstock.world import World

Spawn = Callable[[Coroutine[Any, Any, None]], object]
# How long a resigning leader waits for the responses to EndQuorumEpoch.
RESIGN_TIMEOUT_S = 0.5

logger = logging.getLogger(__name__)


class Callbacks(NamedTuple):
    """What the driver calls: after each step, with a high watermark up to which the log is now
    committed, to install and to download a snapshot, and with the node endpoints of a response."""

    on_step: Callable[[], None]
    on_commit: Callable[[int], None]
    install_snapshot: Callable[[OffsetAndEpoch], Coroutine[Any, Any, None]]
    download_snapshot: Callable[[FetchSnapshot], Coroutine[Any, Any, None]]
    on_endpoints: Callable[[Sequence[Any]], None]


class RaftDriver:
    """Call `start` once, then `deliver` events. `listener` is the name of the controllers'."""

    def __init__(
        self,
        world: World,
        raft: Raft,
        log: MetadataLog,
        state_store: QuorumStateStore,
        peers: Peers,
        encoder: RequestEncoder,
        listener: str,
        spawn: Spawn,
        callbacks: Callbacks,
    ) -> None:
        self.raft = raft
        self._listener = listener
        self.log = log
        self._world = world
        self._state_store = state_store
        self._peers = peers
        self._encoder = encoder
        self._spawn = spawn
        self._callbacks = callbacks
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._is_working = False
        self._is_syncing = False
        self._is_stopped = False
        # Not set while an effect that blocks the next one is carried out.
        self._unblocked = asyncio.Event()
        self._unblocked.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def start(self) -> None:
        self._effects.extend(self.raft.start(self._world.clock.monotonic()))
        self._work()

    def deliver(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_working:
            self._work()

    def handle_request(self, sender: int, request: Request) -> asyncio.Future[Response]:
        """Deliver a request of another node. The future completes with the machine's response."""
        reply_to: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if self._is_stopped:
            raft = self.raft
            reply_to.set_result(
                Response(ErrorCode.BROKER_NOT_AVAILABLE, raft.leader_id_or_sentinel, raft.epoch)
            )
        else:
            self.deliver(RequestReceived(sender, request, reply_to))
        return reply_to

    def on_append(self) -> None:
        """The active leader appended records to the log. A leader has no effect that blocks."""
        invariant(not self._is_working, "records were appended while the quorum waits for the disk")
        self._start_sync()
        self.deliver(Appended())

    async def resign(self) -> None:
        """Stop; a leader first sends EndQuorumEpoch, so that a successor is elected quickly.

        When this returns, no effect changes the log or the quorum-state any more.
        """
        is_idle = not self._is_working
        self.stop()
        await self._unblocked.wait()
        effects = self.raft.step(Resign(), self._world.clock.monotonic())
        if is_idle:
            for effect in effects:
                if isinstance(effect, SendResponse):
                    self._carry_out(effect)
            sends = [
                asyncio.ensure_future(self._send(effect.destination, effect.request))
                for effect in effects
                if isinstance(effect, SendRequest)
            ]
            if sends:
                await asyncio.wait(sends, timeout=RESIGN_TIMEOUT_S)

    def stop(self) -> None:
        """Carry out no further effects."""
        self._is_stopped = self._is_working = True
        if self._timer is not None:
            self._timer.cancel()

    # Steps

    def _work(self) -> None:
        """Alternate between steps and their effects until there is no event left."""
        self._is_working = True
        try:
            while self._effects or self._events:
                if not self._effects:
                    self._step()
                elif (blocking := self._carry_out(self._effects.popleft())) is not None:
                    self._unblocked.clear()
                    self._spawn(self._resume_after(blocking))
                    return
        except BaseException as error:  # noqa: BLE001 - raised in a task, which stops the node, and not in the caller that delivered an event
            self._spawn(_raise(error))
            return
        self._is_working = False
        self._set_timer()

    def _step(self) -> None:
        self._effects.extend(self.raft.step(self._events.popleft(), self._world.clock.monotonic()))
        self._callbacks.on_step()

    async def _resume_after(self, blocking: Coroutine[Any, Any, None]) -> None:
        try:
            await blocking
        finally:
            self._unblocked.set()
        if not self._is_stopped:
            self._work()

    def _set_timer(self) -> None:
        deadline = self.raft.deadline
        if deadline == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = (
            None
            if deadline == math.inf
            else asyncio.get_running_loop().call_at(deadline, self._tick)
        )

    def _tick(self) -> None:
        self._timer = None
        self.deliver(Tick())

    # Effects

    def _carry_out(self, effect: Effect) -> Coroutine[Any, Any, None] | None:
        """Carry out an effect. Return a coroutine that must finish before the next effect."""
        match effect:
            case SaveElectionState(state):
                return self._state_store.save(state)
            case Truncate(offset):
                return self._truncate(offset)
            case InstallSnapshot(snapshot):
                return self._install_snapshot(snapshot)
            case SendRequest(destination, request):
                self._spawn(self._send(destination, request))
            case SendResponse(reply_to, response):
                self._respond(reply_to, response)
            case AppendLeaderChange(epoch, granting_voters, new_voters):
                return self._append(
                    partial(
                        self.log.append_leader_change,
                        epoch,
                        self.raft.node_id,
                        granting_voters,
                        new_voters,
                    )
                )
            case AppendVoters():
                self._append_voters(effect)
            case AskSupportedVersions(voter):
                self._spawn(self._ask_supported_versions(voter))
            case AppendRecords(records):
                return self._append(partial(self.log.append_fetched, records))
            case Sync():
                self._start_sync()
            case FetchSnapshot():
                self._spawn(self._callbacks.download_snapshot(effect))
            case Commit(high_watermark):
                self._callbacks.on_commit(high_watermark)
        return None

    def _append(self, append: Callable[[], None]) -> Coroutine[Any, Any, None] | None:
        """Append to the log. If a new segment is due and too many files are open, the next effect
        waits until it can be created."""
        try:
            append()
        except TooManyFiles:
            return self._append_later(append)
        return None

    def _append_voters(self, effect: AppendVoters) -> None:
        """The next effects do not wait: records that the controller appends may follow."""
        ids = list(effect.voters.ids)
        try:
            self.log.append_voters(effect.epoch, effect.voters, effect.kraft_version)
        except TooManyFiles:
            logger.error("the voters %s are not written: too many files are open", ids)
        else:
            logger.info(
                "the voters of the quorum are %s from offset %d on, if a majority of them gets it",
                ids,
                self.log.end.offset - 1,
            )

    async def _append_later(self, append: Callable[[], None]) -> None:
        while not self._is_stopped:
            await asyncio.sleep(FILES_RETRY_S)
            with contextlib.suppress(TooManyFiles):
                append()
                return

    def _respond(self, reply_to: object, response: Response) -> None:
        """Read the records now: a later leader may have changed the log by the time they are
        sent."""
        if isinstance(reply_to, asyncio.Future) and not reply_to.done():
            if isinstance(response, FetchResponse) and response.read_from is not None:
                response = replace(response, records=self.log.read(response.read_from))
            reply_to.set_result(response)

    async def _truncate(self, offset: int) -> None:
        logger.info(
            "truncating the metadata log from offset %d to %d, where it diverges from the leader's",
            self.log.end.offset,
            offset,
        )
        await self.log.truncate(offset)
        self._events.append(Synced())

    async def _install_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        await self._callbacks.install_snapshot(snapshot)
        self._events.append(Synced())

    def _start_sync(self) -> None:
        if not self._is_syncing:
            self._is_syncing = True
            self._spawn(self._sync())

    async def _sync(self) -> None:
        """Records appended during a sync are covered by the next one."""
        try:
            while self.log.synced_end < self.log.end.offset:
                await self.log.sync()
                self.deliver(Synced())
        finally:
            self._is_syncing = False
        self.deliver(Synced())

    async def _send(self, destination: int, request: Request) -> None:
        message, response_type = self._encoder.encode(destination, request)
        try:
            if isinstance(request, FetchRequest):
                raw = await self._peers.fetch(
                    destination, message, response_type, request.max_wait_s
                )
            else:
                raw = await self._peers.call(destination, message, response_type)
            response = decode_response(request, raw)
        except (KafkaError, ProtocolError) as error:
            logger.debug("%s to node %d failed: %s", type(request).__name__, destination, error)
            self.deliver(RequestFailed(destination, request))
        else:
            self._callbacks.on_endpoints(getattr(raw, "node_endpoints", ()))
            self.deliver(ResponseReceived(destination, request, response))

    async def _ask_supported_versions(self, voter: Voter) -> None:
        """Ask a controller that is to become a voter, at the endpoint that the request gives."""
        levels: tuple[int, int] | None = None
        endpoint = next(
            (each for each in voter.endpoints if each.name == self._listener), voter.endpoints[0]
        )
        try:
            response = await self._peers.call_at(
                voter.id,
                Address(endpoint.host, endpoint.port),
                API_VERSIONS_REQUEST,
                ApiVersionsResponse,
            )
        except (KafkaError, ProtocolError) as error:
            logger.info("controller %d did not answer ApiVersions: %s", voter.id, error)
        else:
            for feature in response.supported_features:
                if feature.name == KRAFT_VERSION:
                    levels = feature.min_version, feature.max_version
            if levels is None and not response.error_code:
                levels = (0, 0)
        self.deliver(SupportedVersionsReceived(voter.key, levels))


async def _raise(error: BaseException) -> None:
    raise error
