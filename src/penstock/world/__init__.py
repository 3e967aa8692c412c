"""The seam between Penstock and everything outside it. A `World` bundles its parts:

- `Clock`: the wall clock and monotonic time
- `Rng`: random numbers and uuids
- `Disk`, `File`: files, directories, durability, locks and free space
- `Network`, `Listener`: name resolution, listening and connecting
- `Offload`: blocking calls in threads, and CPU-bound work in child processes

`world.real` implements them with uvloop, files, sockets, threads and a child process. `world.sim`
simulates them: a whole cluster runs in one process, in virtual time, from one seed. This module
imports neither.

Timers have no part of their own. Both worlds run on an asyncio event loop, and code above the seam
uses `asyncio.sleep`, `loop.call_later` and `loop.call_at`; in simulation they run in virtual time.
Do not call `.when()` on the handle that `call_later` and `call_at` return: for a deadline less than
0.5 ms away uvloop returns a plain `Handle`, which has no `.when()`. Keep the deadline yourself.

Not covered: logging, signals and command lines (`cli`), TLS (`server` wraps transports).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

from penstock.ids import Buffer
from penstock.limits import ACCEPT_BACKLOG

P = ParamSpec("P")
T = TypeVar("T")

# The errors of a process or a machine that has too many open files. The disk is not at fault, and
# nothing was written.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})


class Clock(Protocol):
    """Time. The wall clock may jump, so safety must not depend on it (rule 26)."""

    def now_ms(self) -> int:
        """Return wall clock time in milliseconds since 1970, for timestamps in records."""

    def monotonic(self) -> float:
        """Return monotonic time in seconds, for durations and deadlines. The event loop's time() is
        the same clock."""


class Rng(Protocol):
    """Random numbers and uuids."""

    def random(self) -> float:
        """Return a float in [0, 1)."""

    def randrange(self, stop: int) -> int:
        """Return an int in [0, stop)."""

    def uuid(self) -> UUID:
        """Return a random uuid that Kafka can use: it is not reserved, and its text does not begin
        with a dash."""


class File(Protocol):
    """An open file, read and written at positions, without a cursor. Every call may raise
    OSError."""

    path: str

    def pread(self, length: int, position: int, /) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def pread_at_once(self, length: int, position: int, /) -> bytes | bytearray | None:
        """Read `length` bytes without blocking, or return None if that needs the disk. Never
        raises: errors surface in the `pread` that follows."""

    def in_memory(self, length: int, position: int, /) -> bool:
        """Return True if the range is in the page cache, so that sending it does not block."""

    def bring_in(self, length: int, position: int, /) -> None:
        """Read the range into the page cache, and start to read ahead of it. Blocks: call it
        through `Offload.thread`."""

    def pwrite(self, data: Buffer, position: int, /) -> int:
        """Write all of `data`, or raise. A power failure may lose the data until `sync`
        returns."""

    def truncate(self, size: int, /) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Make written data durable (fdatasync). Blocks: call it through `Offload.thread`. After an
        error, assume that nothing unsynced is on disk (rule 22)."""

    def write_back(self, position: int, length: int, /) -> None:
        """Start to write a range back to disk, without any guarantee. It leaves less work for
        `sync`, and keeps the kernel from throttling writers over dirty pages. Blocks while the disk
        is busy: call it through `Offload.thread`."""

    def fileno(self) -> int:
        """Return the descriptor, for sendfile. A simulated file has none and raises OSError."""

    def close(self) -> None: ...


class Volume(NamedTuple):
    """The size of a file system, and what an unprivileged process may still use of it."""

    total_bytes: int
    free_bytes: int


class Disk(Protocol):
    """A file system. Paths are strings with '/', absolute or relative. Every call may raise OSError
    and its subclasses."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. With `create`, create an absent file."""

    def read(self, path: str) -> bytes:
        """Read a whole file. For small ones: checkpoints, properties."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file atomically: after a crash, its content is the old or the new one.
        Writes path + '.tmp', syncs, renames, syncs the directory. Blocks: call it through
        `Offload.thread` once the node serves."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """Return size and free space of the volume that holds a path."""

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing an existing file. Durable only after `sync_dir`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and removed in a directory durable (fsync). Blocks."""

    def lock(self, path: str) -> object:
        """Lock a file for this process, and create it if absent. Raise BlockingIOError if another
        process holds the lock. The lock lasts until the returned object is garbage collected or the
        process ends."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int: ...

    async def accept(self) -> None:
        """Start to accept connections. No effect if that has started."""

    def close(self) -> None:
        """Stop accepting connections. Open connections stay open."""

    async def wait_closed(self) -> None: ...


ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Network(Protocol):
    """Connections, as asyncio transports and protocols (BufferedProtocol included)."""

    def max_descriptors(self) -> int | None:
        """Return how many descriptors this process may have, for connections and files together;
        None if there is no limit."""

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        backlog: int = ACCEPT_BACKLOG,
        *,
        accepting: bool = True,
    ) -> Listener:
        """Listen on a port; port 0 picks a free one. `backlog` connections may wait to be accepted.
        With `accepting` false the port is bound, but connections are refused until
        `Listener.accept`."""

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class Offload(Protocol):
    """Work that must not run on the event loop."""

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in a thread. For calls that release the GIL: fdatasync, renames, removals.
        Threads do not share broker state: pass values, not mutable objects.

        A call that fails because too many files are open is repeated until that has changed, so it
        must be repeatable.
        """

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that reads from the disk in a thread. Reads have threads of their own: many
        slow reads do not delay a sync, for which the metadata quorum may wait. A call that fails is
        not repeated."""

    async def process(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a module-level function in the child process, with the child's disk as its first
        argument. Arguments and result must be picklable. For work on single records that a request
        waits for."""

    async def background(
        self, call: Callable[Concatenate[Disk, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `process`, in a child process for long work that no request waits for: compaction and
        recovery. Module-level state that a call leaves is there for the next one, unless the child
        died in between."""


@dataclass(frozen=True, slots=True)
class World:
    """The parts of the seam. `start` hands them to the parts of a node."""

    clock: Clock
    rng: Rng
    disk: Disk
    network: Network
    offload: Offload
