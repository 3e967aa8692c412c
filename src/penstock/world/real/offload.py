"""Threads for blocking calls, and child processes for work on records. They start with the first
call that needs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from penstock.limits import FILES_RETRY_S, OFFLOAD_READ_THREADS, OFFLOAD_THREADS
from penstock.world import TOO_MANY_FILES, Disk
from penstock.world.real.child import BOOTSTRAP, LENGTH_BYTES, pack

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class RealOffload:
    """Syncs and reads have separate threads. Requests and long work have separate child
    processes."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(OFFLOAD_THREADS, thread_name_prefix="penstock-offload")
        self._readers = ThreadPoolExecutor(OFFLOAD_READ_THREADS, thread_name_prefix="penstock-read")
        self._child = _Child()
        self._background = _Child()

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = partial(call, *args, **kwargs)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await _in_thread(self._threads, work)
            except OSError as error:
                if error.errno not in TOO_MANY_FILES:
                    raise
                if attempt & (attempt - 1) == 0:  # 1, 2, 4, ...: not a line for each attempt
                    logger.warning(
                        "retrying: %s (%d times so far). Raise the limit of open files "
                        "(ulimit -n), or lower max.connections",
                        error,
                        attempt,
                    )
            await asyncio.sleep(FILES_RETRY_S)

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _in_thread(self._readers, partial(call, *args, **kwargs))

    async def process(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return cast("T", await self._child.run(pack((call, args, kwargs))))

    async def background(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return cast("T", await self._background.run(pack((call, args, kwargs))))

    async def close(self) -> None:
        """Kill the child processes. Do not wait for running threads."""
        await self._child.end()
        await self._background.end()
        for threads in (self._threads, self._readers):
            threads.shutdown(wait=False, cancel_futures=True)


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


class _Child:
    """A child process that runs one call at a time. Cancelling a call kills the child, so that its
    work stops; the next call starts another."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def run(self, request: bytes) -> object:
        """Run a packed call. Return its result or raise its error."""
        async with self._turn:
            if self._process is None:
                self._process = await _start_child()
            try:
                succeeded, outcome = await _call(self._process, request)
            except BaseException:
                await self.end()
                raise
        if succeeded:
            return outcome
        raise cast("Exception", outcome)

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has already ended
                process.kill()
            await process.wait()


async def _start_child() -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    # In its own session, so that Ctrl-C in a terminal reaches the node and not its child.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BOOTSTRAP, stdin=pipe, stdout=pipe, start_new_session=True
    )
    _input(child).write(pickle.dumps(sys.path))
    return child


async def _call(child: asyncio.subprocess.Process, request: bytes) -> tuple[bool, Any]:
    try:
        _input(child).write(request)
        await _input(child).drain()
        length = int.from_bytes(await _output(child).readexactly(LENGTH_BYTES), "big")
        outcome: tuple[bool, Any] = pickle.loads(await _output(child).readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await child.wait()
        reason = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise ChildProcessError(
            f"the child process {reason} during a call, which may have taken partial effect; the "
            "next call starts another child"
        ) from error
    return outcome


def _input(child: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    return cast("asyncio.StreamWriter", child.stdin)


def _output(child: asyncio.subprocess.Process) -> asyncio.StreamReader:
    return cast("asyncio.StreamReader", child.stdout)
