"""Carries out what the quorum's machine decides, in its order: an event is handed in only when the
effects of the one before are done.

So nothing is said before it is on disk, and the machine never sees a log that is about to be cut.
Effects that take long and need not be waited for (sending, syncing, fetching a snapshot) run
beside, and come back as events.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from penstock.errors import ErrorCode, KafkaError, ProtocolError, invariant
from penstock.node.quorum.log import QuorumLog
from penstock.node.quorum.peers import Peers
from penstock.node.quorum.requests import Speaker, answer_of
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.machine import Raft
from penstock.raft.messages import (
    Answer,
    Answered,
    Appended,
    AppendLeaderChange,
    AppendRecords,
    Asked,
    AskFetch,
    Commit,
    Effect,
    Event,
    FetchAnswer,
    FetchSnapshot,
    InstallSnapshot,
    Reply,
    Request,
    Resign,
    SaveState,
    Send,
    Sync,
    Synced,
    Tick,
    Truncate,
    Unreachable,
)
from penstock.world import World

Spawn = Callable[[Coroutine[Any, Any, None]], object]
FETCH, CONTROL = "fetch", "control"
# How long a leader that stops waits until the others have heard of it.
GOODBYE_S = 0.5

logger = logging.getLogger(__name__)


class Told(NamedTuple):
    """An answer, with the records that go with it."""

    answer: Answer
    records: bytes


class Shell(NamedTuple):
    """What the driver calls: when the machine made a step, when the watermark moved, to load a
    snapshot, to fetch one, and when a response told where a leader is."""

    stepped: Callable[[], None]
    committed: Callable[[], None]
    install: Callable[[OffsetAndEpoch], Coroutine[Any, Any, None]]
    download: Callable[[FetchSnapshot], Coroutine[Any, Any, None]]
    learn_endpoints: Callable[[Sequence[Any]], None]


class Driver:
    """`begin` once, then `deliver`."""

    def __init__(
        self,
        world: World,
        raft: Raft,
        log: QuorumLog,
        peers: Peers,
        speaker: Speaker,
        spawn: Spawn,
        shell: Shell,
    ) -> None:
        self.raft = raft
        self._world = world
        self._log = log
        self._peers = peers
        self._speaker = speaker
        self._spawn = spawn
        self._shell = shell
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._is_working = False
        self._is_syncing = False
        self._is_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def begin(self) -> None:
        self._effects.extend(self.raft.start(self._world.clock.monotonic()))
        self._work()

    def deliver(self, event: Event) -> None:
        self._events.append(event)
        if not self._is_working:
            self._work()

    def ask(self, sender: int, request: Request) -> asyncio.Future[Told]:
        """A request of another node, to be answered when the machine says so."""
        reply: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        if self._is_ended:
            reply.set_result(
                Told(
                    Answer(ErrorCode.BROKER_NOT_AVAILABLE, self.raft.known_leader, self.raft.epoch),
                    b"",
                )
            )
        else:
            self.deliver(Asked(sender, request, reply))
        return reply

    def appended(self) -> None:
        """Records were written by the active leader, which is never in the midst of anything that
        must be waited for."""
        invariant(not self._is_working, "records were appended while the quorum waits for the disk")
        self._begin_sync()
        self.deliver(Appended())

    async def resign(self) -> None:
        """Says goodbye, in a short time; nothing is carried out any more."""
        is_idle = not self._is_working
        self.end()
        effects = self.raft.step(Resign(), self._world.clock.monotonic())
        if is_idle:
            for effect in effects:
                if isinstance(effect, Reply):
                    self._carry_out(effect)
            goodbyes = [
                asyncio.ensure_future(self._send(effect.to, effect.request))
                for effect in effects
                if isinstance(effect, Send)
            ]
            if goodbyes:
                await asyncio.wait(goodbyes, timeout=GOODBYE_S)

    def end(self) -> None:
        """Nothing is carried out any more."""
        self._is_ended = self._is_working = True
        if self._timer is not None:
            self._timer.cancel()

    # The order of things

    def _work(self) -> None:
        self._is_working = True
        try:
            while self._effects or self._events:
                if not self._effects:
                    self._step()
                elif (blocking := self._carry_out(self._effects.popleft())) is not None:
                    self._spawn(self._go_on_after(blocking))
                    return
        except BaseException as error:  # noqa: BLE001 - whoever came by is not to blame: it is raised in a task, which stops the node
            self._spawn(_raise(error))
            return
        self._is_working = False
        self._set_timer()

    def _step(self) -> None:
        self._effects.extend(self.raft.step(self._events.popleft(), self._world.clock.monotonic()))
        self._shell.stepped()

    async def _go_on_after(self, blocking: Coroutine[Any, Any, None]) -> None:
        await blocking
        if not self._is_ended:
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
        """Gives what must be waited for before anything else happens."""
        match effect:
            case SaveState(state):
                return self._log.save_state(self._speaker.cluster_id, self.raft.voters, state)
            case Truncate(offset):
                return self._truncate(offset)
            case InstallSnapshot(snapshot):
                return self._install(snapshot)
            case Send(to, request):
                self._spawn(self._send(to, request))
            case Reply(reply, answer):
                self._reply(reply, answer)
            case AppendLeaderChange(epoch, granting):
                self._log.append_leader_change(epoch, self.raft.node_id, self.raft.voters, granting)
            case AppendRecords(records):
                self._log.append_fetched(records)
            case Sync():
                self._begin_sync()
            case FetchSnapshot():
                self._spawn(self._shell.download(effect))
            case Commit():
                self._shell.committed()
        return None

    def _reply(self, reply: object, answer: Answer) -> None:
        """Records are read now: later the log may be another leader's."""
        if isinstance(reply, asyncio.Future) and not reply.done():
            offset = answer.read_from if isinstance(answer, FetchAnswer) else None
            reply.set_result(Told(answer, b"" if offset is None else self._log.read(offset)))

    async def _truncate(self, offset: int) -> None:
        logger.info(
            "the metadata log is truncated from %d to %d: the leader's differs",
            self._log.end.offset,
            offset,
        )
        await self._log.truncate(offset)
        self._events.append(Synced())

    async def _install(self, snapshot: OffsetAndEpoch) -> None:
        await self._shell.install(snapshot)
        self._events.append(Synced())

    def _begin_sync(self) -> None:
        if not self._is_syncing:
            self._is_syncing = True
            self._spawn(self._sync())

    async def _sync(self) -> None:
        """What is appended meanwhile rides on the next one."""
        try:
            while self._log.synced_end < self._log.end.offset:
                await self._log.sync()
                self.deliver(Synced())
        finally:
            self._is_syncing = False
        self.deliver(Synced())

    async def _send(self, to: int, request: Request) -> None:
        message, response = self._speaker.request(to, request)
        lane, wait = (
            (FETCH, request.max_wait_s) if isinstance(request, AskFetch) else (CONTROL, 0.0)
        )
        try:
            told = await self._peers.call(to, lane, message, response, wait)
            answer = answer_of(request, told)
        except (KafkaError, ProtocolError) as error:
            logger.debug("node %d gave no answer to %s: %s", to, type(request).__name__, error)
            self.deliver(Unreachable(to, request))
        else:
            self._shell.learn_endpoints(told.node_endpoints)
            self.deliver(Answered(to, request, answer))


async def _raise(error: BaseException) -> None:
    raise error
