"""Looks at the quorum of a simulated cluster: votes as they are spoken, leaders, and what is
committed, on whose disks it is."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.log import MetadataLog
from penstock.raft.messages import (
    AppendLeaderChange,
    Commit,
    Effect,
    Event,
    RequestReceived,
    SendRequest,
    SendResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import LeaderState
from penstock.records.batch import batches
from penstock.sim.cluster.history import Applied, Decided, History, Ruled, Voted
from penstock.sim.patching import replaced


class QuorumObserver:
    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history = history
        self._now = now
        # Of each node the log of its present life, or of the last one.
        self._logs: dict[int, MetadataLog] = {}
        self._asked: dict[Any, tuple[int, VoteRequest]] = {}
        self._applied: dict[RaftDriver, int] = {}

    @contextlib.contextmanager
    def looking_on(self) -> Iterator[None]:
        with (
            replaced(RaftDriver, "start", self._on_begin),
            replaced(RaftDriver, "deliver", self._on_event),
            replaced(RaftDriver, "_carry_out", self._on_effect),
        ):
            yield

    def _on_begin(self, begin: Callable[..., None]) -> Callable[..., None]:
        def began(driver: RaftDriver) -> None:
            self._logs[driver.raft.node_id] = driver.log
            begin(driver)

        return began

    def _on_event(self, deliver: Callable[..., None]) -> Callable[..., None]:
        def delivered(driver: RaftDriver, event: Event) -> None:
            if (
                isinstance(event, RequestReceived)
                and isinstance(event.request, VoteRequest)
                and not event.request.pre_vote
            ):
                self._asked[event.reply_to] = (event.sender, event.request)
            deliver(driver, event)

        return delivered

    def _on_effect(self, carry_out: Callable[..., Any]) -> Callable[..., Any]:
        def carried_out(driver: RaftDriver, effect: Effect) -> Any:
            self._spoken(driver, effect)
            result = carry_out(driver, effect)
            if isinstance(effect, Commit):
                self._committed(driver, effect.high_watermark)
            return result

        return carried_out

    def _spoken(self, driver: RaftDriver, effect: Effect) -> None:
        node_id, now = driver.raft.node_id, self._now()
        match effect:
            case SendResponse(reply, VoteResponse(granted=True)) if reply in self._asked:
                candidate, ask = self._asked.pop(reply)
                self._history.events.append(Voted(now, node_id, ask.epoch, candidate))
            case SendRequest(_to, VoteRequest(epoch=epoch, pre_vote=False)):
                self._history.events.append(Voted(now, node_id, epoch, node_id))
            case AppendLeaderChange(epoch):
                self._history.events.append(Ruled(now, node_id, epoch))
            case _:
                pass

    def _committed(self, driver: RaftDriver, offset: int) -> None:
        raft, log, now = driver.raft, driver.log, self._now()
        if isinstance(raft.state, LeaderState):
            entry_epoch = log.epoch_at(offset - 1)
            holders = [voter for voter in raft.voters if self._has(voter, offset, entry_epoch)]
            self._history.events.append(
                Decided(
                    now,
                    raft.node_id,
                    raft.epoch,
                    offset,
                    entry_epoch,
                    len(holders),
                    len(raft.voters),
                )
            )
        position = max(self._applied.get(driver, 0), log.start_offset)
        while position < offset:
            data = log.read(position, below=offset)
            if not data:
                break
            for at, header in batches(data):
                fingerprint = zlib.crc32(data[at : at + header.size])
                self._history.events.append(
                    Applied(now, raft.node_id, header.base_offset, fingerprint)
                )
                position = header.next_offset
        self._applied[driver] = position

    def _has(self, voter: int, offset: int, epoch: int) -> bool:
        log = self._logs.get(voter)
        return (
            log is not None
            and log._log.flushing.recovery_point >= offset
            and log.epoch_at(offset - 1) == epoch
        )
