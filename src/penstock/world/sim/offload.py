"""Offloaded work in virtual time: a call runs at one moment, and its result arrives later.

A crash may leave the disk changes of a call complete, in part or not at all. Its result never
arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from penstock.limits import FILES_RETRY_S
from penstock.world import TOO_MANY_FILES, Disk
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.errors import NodeCrashed

P = ParamSpec("P")
T = TypeVar("T")

# About an fdatasync on a busy disk, and a pass of the log cleaner.
THREAD_DELAY_S = 0.004
PROCESS_DELAY_S = 0.4
# An interrupted call makes at most 2 to this power changes. The exponent is drawn, so that short
# calls are interrupted in the middle as often as long ones.
MAX_CHANGES_IN_CRASH_LOG2 = 12


@dataclass(slots=True, eq=False)
class _Work:
    call: Callable[[], Any]
    delay_s: float
    outcome: asyncio.Future[Any]


class SimOffload:
    def __init__(self, rng: random.Random, drive: SimDrive, disk: Disk) -> None:
        self._rng = rng
        self._drive = drive
        self._disk = disk
        self.thread_delay_s = THREAD_DELAY_S
        self._turn = asyncio.Lock()
        self._background_turn = asyncio.Lock()
        self._waiting: dict[_Work, None] = {}  # a dict for its order

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return await self.read(call, *args, **kwargs)
            except OSError as error:
                if error.errno not in TOO_MANY_FILES:
                    raise
            await asyncio.sleep(FILES_RETRY_S)

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = partial(call, *args, **kwargs)
        return cast("T", await self._begin(work, self.thread_delay_s, killable=False))

    async def process(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return cast("T", await self._in_child(self._turn, pickle.dumps((call, args, kwargs))))

    async def background(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        request = pickle.dumps((call, args, kwargs))
        return cast("T", await self._in_child(self._background_turn, request))

    async def _in_child(self, turn: asyncio.Lock, request: bytes) -> object:
        """Run one call at a time, and pickle its arguments and result as the real world does."""
        async with turn:
            result = await self._begin(
                partial(_call_pickled, request, self._disk), PROCESS_DELAY_S, killable=True
            )
        return pickle.loads(result)

    def _begin(
        self, call: Callable[[], object], delay_s: float, *, killable: bool
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        work = _Work(call, delay_s, loop.create_future())
        self._waiting[work] = None
        if killable:
            work.outcome.add_done_callback(partial(self._cancelled, work))
        loop.call_later(self._rng.random() * delay_s, self._run, work)
        return work.outcome

    def _run(self, work: _Work) -> None:
        if work not in self._waiting:
            return
        del self._waiting[work]
        error: BaseException | None = None
        result: object = None
        try:
            result = work.call()
        except (Exception, NodeCrashed) as caught:  # noqa: BLE001 - raised again in the caller
            error = caught
        # The result arrives later: data written between a sync and its result is not synced.
        asyncio.get_running_loop().call_later(
            self._rng.random() * work.delay_s, _deliver, work.outcome, result, error
        )

    def _cancelled(self, work: _Work, outcome: asyncio.Future[Any]) -> None:
        """Interrupt a call in the child process, which is killed. A thread cannot be
        interrupted."""
        if outcome.cancelled() and work in self._waiting:
            del self._waiting[work]
            self._run_in_part(work)
            self._drive.stop_after(None)

    def crash(self) -> None:
        """Interrupt all calls. Called while the disk still works: a call may run, or stop
        midway."""
        waiting, self._waiting = self._waiting, {}
        for work in waiting:
            self._run_in_part(work)

    def _run_in_part(self, work: _Work) -> None:
        if self._rng.random() < 0.5:
            self._drive.stop_after(int(2 ** (self._rng.random() * MAX_CHANGES_IN_CRASH_LOG2)) - 1)
            with contextlib.suppress(NodeCrashed, Exception):  # no caller is left
                work.call()


def _deliver(outcome: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if outcome.cancelled():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


def _call_pickled(request: bytes, disk: Disk) -> bytes:
    call: Callable[..., Any]
    call, args, kwargs = pickle.loads(request)
    return pickle.dumps(call(disk, *args, **kwargs))
