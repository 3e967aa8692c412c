"""The seam to the world: clock, rng, disk, network and work done elsewhere, as small protocols.

Everything that Penstock knows of the outside comes through a `World`. `world.real` has the real
forms (uvloop, files, sockets, threads, a child process) and `world.sim` the simulated ones, with
which a whole cluster runs in one process, in virtual time, from one seed.

Timers need no seam of their own: both worlds run on an asyncio loop (`asyncio.sleep`,
`loop.call_later`), the simulated one in virtual time. This file must never import either form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

from penstock.ids import Buffer
from penstock.limits import ACCEPT_BACKLOG

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Time. The wall clock may jump; nothing that must be safe may depend on it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for timestamps in records."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines. The same clock as the event
        loop's time()."""


class Rng(Protocol):
    """Randomness, uuids included."""

    def random(self) -> float:
        """A float in [0, 1)."""

    def randrange(self, stop: int) -> int:
        """An int in [0, stop)."""

    def uuid(self) -> UUID:
        """A random uuid that Kafka can use: not a reserved one, and its text does not begin with a
        dash."""


class File(Protocol):
    """One open file, read and written at positions: there is no cursor. Every call may raise
    OSError."""

    path: str

    def pread(self, length: int, position: int, /) -> bytes:
        """Up to length bytes; fewer only at the end of the file."""

    def pread_at_once(self, length: int, position: int, /) -> bytes | bytearray | None:
        """All of it, or None where that would have to wait for a disk. Never raises: what is wrong
        is told by the `pread` that follows."""

    def in_memory(self, length: int, position: int, /) -> bool:
        """Whether it can be sent without waiting for a disk."""

    def bring_in(self, length: int, position: int, /) -> None:
        """Into memory, and begins with what follows, which is probably asked for next. Blocks, so
        call it through `Offload.thread`."""

    def pwrite(self, data: Buffer, position: int, /) -> int:
        """Writes all of data, or raises. What was written may be lost by a power failure until
        `sync` returns."""

    def truncate(self, size: int, /) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """fdatasync: blocks, so call it through `Offload.thread`. After an error nothing unsynced
        may be assumed to be on disk."""

    def write_back(self, position: int, length: int, /) -> None:
        """Begins to write a part out, and promises nothing: it leaves less to do for `sync`, and
        for a kernel that makes writers wait when too much is unwritten. Blocks while the disk is
        busy, so call it through `Offload.thread`."""

    def fileno(self) -> int:
        """For sendfile; the simulated file has none and raises OSError."""

    def close(self) -> None: ...


class Volume(NamedTuple):
    """The bytes that a file system holds, and those that are still free for us."""

    total_bytes: int
    free_bytes: int


class Disk(Protocol):
    """A file system. Paths are absolute or relative strings with '/'. Every call may raise OSError
    (FileNotFoundError and so on)."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; with create, an absent file is made empty."""

    def read(self, path: str) -> bytes:
        """The whole file. For small ones: checkpoints, properties."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a whole small file so that a crash leaves either the old or the new one: a
        temporary file beside it (path + '.tmp'), sync, rename, sync of the directory. Blocks, so
        call it through `Offload.thread` once the node serves."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """The volume that a path lies on."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Makes a directory and its parents; no error where it is there already."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces an existing file. Survives power loss only after `sync_dir` of the
        directory."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """fsync of a directory: names created, renamed and removed in it survive power loss from
        here on. Blocks."""

    def lock(self, path: str) -> object:
        """Takes a lock file for this process, made if absent; BlockingIOError where another one has
        it. Held until the process ends, or until nothing refers to what it gives."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    async def accept(self) -> None:
        """From here on connections are taken; no effect where they are already."""

    def close(self) -> None:
        """Takes no new connections; open ones live on."""

    async def wait_closed(self) -> None: ...


ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Network(Protocol):
    """Connections in the shape of asyncio's transports and protocols (BufferedProtocol
    included)."""

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int = ACCEPT_BACKLOG,
        *,
        accepting: bool = True,
    ) -> Listener:
        """Port 0 takes a free one. The backlog is how many connections may wait to be taken. Not
        accepting, the port is ours, but whoever connects is refused until `Listener.accept`."""

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class Offload(Protocol):
    """Work that may not run on the event loop."""

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """For calls that release the GIL: fdatasync, cold reads. No threads share broker state:
        pass values, not objects that change."""

    async def process(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """For work on records one by one. A module-level function, given the disk of its world and
        picklable arguments."""


@dataclass(frozen=True, slots=True)
class World:
    """All of it, handed to what needs it by `start` alone."""

    clock: Clock
    rng: Rng
    disk: Disk
    network: Network
    offload: Offload
