"""The drive of a simulated machine: what outlives its processes, and every fault that a disk can
have.

Owns the files and names of one machine, and its faults. A process sees it through a `SimDisk`,
which a crash makes useless.

    drive = SimDrive(random.Random(seed))
    disk = SimDisk(drive)
    ...
    drive.crash(power_loss=True)
    disk = SimDisk(drive)  # what has survived
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.world.sim.errors import NodeCrashed
from penstock.world.sim.names import Names, find_file, split
from penstock.world.sim.trace import Detail

# Every operation that a fault may be put on. "open" is also the creation of a file.
READING = frozenset({"open", "read", "pread", "list", "size"})
CHANGING = frozenset(
    {"create", "pwrite", "truncate", "sync", "make_dir", "rename", "remove", "sync_dir"}
)
OPERATIONS = READING | CHANGING


@dataclass(slots=True, eq=False)
class Fault:
    """An I/O error to come."""

    prefix: str
    operations: frozenset[str]
    number: int
    times: int | None

    def strikes(self, operation: str, path: str) -> bool:
        if self.times == 0 or operation not in self.operations or not path.startswith(self.prefix):
            return False
        if self.times is not None:
            self.times -= 1
        return True


def _no_trace(kind: str, *details: Detail) -> None: ...


class SimDrive:
    """`capacity_bytes` bounds what the files hold together. With `ignore_sync` every sync claims
    success and does nothing, to show that a test would notice a missing one."""

    def __init__(
        self,
        rng: random.Random,
        now_ms: Callable[[], int] = lambda: 0,
        record: Callable[..., None] = _no_trace,
    ) -> None:
        self.names = Names()
        self.rng = rng
        self.now_ms = now_ms
        self.record = record
        self.capacity_bytes: int | None = None
        self.ignore_sync = False
        self.epoch = 0
        self._faults: list[Fault] = []
        self._changes_left: int | None = None

    # Faults

    def crash(self, *, power_loss: bool = False) -> None:
        """The process is gone, and with it all open files. Only a power loss takes what is not
        synced."""
        self.epoch += 1
        self._changes_left = None
        self.record("disk-crash", power_loss, self.epoch)
        if power_loss:
            self._lose_power()

    def _lose_power(self) -> None:
        # Now and then all or nothing survives: the extremes find other bugs than the mixture.
        keep = self.rng.choice((0.0, 0.3, 0.6, 1.0))
        changes = self.names.unsynced
        self.names.lose_power(
            changes if keep == 1.0 else 0 if keep == 0.0 else self.rng.randrange(changes + 1)
        )
        for inode in self.names.files():
            inode.lose_power(self.rng, keep)

    def stop_after(self, changes: int | None) -> None:
        """Lets that many more changes (writes, syncs, renames, ...) happen, then none: every use
        raises NodeCrashed until `crash`, or until None takes it back."""
        self._changes_left = changes

    def fail(
        self,
        prefix: str,
        operations: Iterable[str],
        number: int = errno.EIO,
        *,
        times: int | None = None,
    ) -> Fault:
        """Operations (see `OPERATIONS`) on paths that begin so raise OSError with this number, so
        many times or until `heal`."""
        struck = frozenset(operations)
        unknown = struck - OPERATIONS
        if unknown:
            raise ValueError(
                f"no such disk operations: {sorted(unknown)}; there are {sorted(OPERATIONS)}"
            )
        fault = Fault("/" + prefix.lstrip("/"), struck, number, times)
        self._faults.append(fault)
        self.record("disk-fault", fault.prefix, *sorted(fault.operations), number, times)
        return fault

    def heal(self) -> None:
        """Ends all injected errors. What they broke stays broken."""
        self._faults.clear()
        self.record("disk-heal")

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        inode = find_file(self.names.root, split(path))
        if not (0 <= position < len(inode.content) and 0 <= bit < 8):
            raise ValueError(
                f"{path!r} has {len(inode.content)} bytes: there is no bit {bit} at {position}"
            )
        inode.flip_bit(position, bit)
        self.record("disk-flip", path, position, bit)

    def evict(self) -> None:
        """Drops clean pages from the page cache. It shows what a failed sync has lost."""
        for inode in self.names.files():
            inode.evict()
        self.record("disk-evict")

    # What SimDisk and SimFile ask before they act

    def check_alive(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise NodeCrashed("this disk or file belongs to a process that has crashed")
        if self._changes_left is not None and self._changes_left < 0:
            raise NodeCrashed("the node was stopped at this point by stop_after")

    def begin(self, operation: str, path: str, *details: Detail) -> None:
        """Counts, traces and may fail the operation."""
        if error := self.fails(operation, path, *details):
            raise error

    def fails(self, operation: str, path: str, *details: Detail) -> OSError | None:
        """For operations that leave something behind when they fail."""
        if operation in CHANGING:
            self._count_change()
            self.record(operation, path, *details)
        for fault in self._faults:
            if fault.strikes(operation, path):
                self.record("disk-error", operation, path, fault.number)
                return OSError(fault.number, os.strerror(fault.number) + " (injected)", path)
        return None

    def _count_change(self) -> None:
        if self._changes_left is None:
            return
        self._changes_left -= 1
        if self._changes_left < 0:
            raise NodeCrashed("the node was stopped at this point by stop_after")

    def free_bytes(self) -> int | None:
        """None is without bound."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - sum(len(inode.content) for inode in self.names.files()))
