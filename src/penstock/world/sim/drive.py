"""The drive of a simulated machine: its files, which survive processes, and its faults.

A process accesses it through a `SimDisk`, which a crash invalidates.

    drive = SimDrive(random.Random(seed))
    disk = SimDisk(drive)
    ...
    drive.crash(power_loss=True)
    disk = SimDisk(drive)  # shows what survived
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.world.sim.errors import NodeCrashed
from penstock.world.sim.kinds import DiskTrigger, file_kind
from penstock.world.sim.names import Names, find_file, joined, split
from penstock.world.sim.trace import Detail

# The operations that can fail. Opening a file with create=True is "open" and then "create".
READING = frozenset({"open", "read", "pread", "list", "size"})
CHANGING = frozenset(
    {"create", "pwrite", "truncate", "sync", "make_dir", "rename", "remove", "sync_dir"}
)
OPERATIONS = READING | CHANGING


@dataclass(slots=True, eq=False)
class Fault:
    """An injected I/O error."""

    prefix: str
    operations: frozenset[str]
    number: int
    times: int | None

    def applies(self, operation: str, path: str) -> bool:
        if self.times == 0 or operation not in self.operations or not path.startswith(self.prefix):
            return False
        if self.times is not None:
            self.times -= 1
        return True


def _no_trace(kind: str, *details: Detail) -> None: ...


def _call(action: Callable[[], object]) -> None:
    action()


class SimDrive:
    """`capacity_bytes` bounds the total size of the files. With `ignore_sync` every sync succeeds
    without effect, to show that a test notices a missing sync. `call_next` runs the action of a
    trigger after the current callback."""

    def __init__(
        self,
        rng: random.Random,
        now_ms: Callable[[], int] = lambda: 0,
        record: Callable[..., None] = _no_trace,
        call_next: Callable[[Callable[[], object]], None] = _call,
    ) -> None:
        self.names = Names()
        self.rng = rng
        self.now_ms = now_ms
        self.record = record
        self._call_next = call_next
        self.capacity_bytes: int | None = None
        self.ignore_sync = False
        self.epoch = 0
        self._faults: list[Fault] = []
        self._triggers: list[DiskTrigger] = []
        self._changes_left: int | None = None

    # Faults

    def crash(self, *, power_loss: bool = False, keep: float | None = None) -> None:
        """Invalidate all open files and disks. A power loss also loses unsynced data, of which the
        fraction `keep` survives; without it, a random one."""
        self.epoch += 1
        self._changes_left = None
        self.record("disk-crash", power_loss, self.epoch)
        if power_loss:
            self._lose_power(keep)

    def _lose_power(self, keep: float | None) -> None:
        if keep is None:
            # Sometimes everything or nothing survives: these extremes find other bugs than a
            # mixture.
            keep = self.rng.choice((0.0, 0.3, 0.6, 1.0))
        changes = self.names.unsynced
        self.names.lose_power(
            changes if keep == 1.0 else 0 if keep == 0.0 else self.rng.randrange(changes + 1)
        )
        for inode in self.names.files():
            inode.lose_power(self.rng, keep)

    def stop_after(self, changes: int | None) -> None:
        """Allow this many more changes (writes, syncs, renames, ...). After that every use raises
        NodeCrashed, until `crash` or `stop_after(None)`."""
        self._changes_left = changes

    @property
    def has_stopped(self) -> bool:
        """True if every use raises NodeCrashed. The process may not have used the drive since."""
        return self._changes_left is not None and self._changes_left < 0

    def fail(
        self,
        prefix: str,
        operations: Iterable[str],
        number: int = errno.EIO,
        *,
        times: int | None = None,
    ) -> Fault:
        """Let operations (see `OPERATIONS`) on paths with this prefix raise OSError with this
        errno, `times` times or until `heal`."""
        fault = Fault("/" + prefix.lstrip("/"), _checked(operations), number, times)
        self._faults.append(fault)
        self.record("disk-fault", fault.prefix, *sorted(fault.operations), number, times)
        return fault

    def heal(self) -> None:
        """End all injected errors. Data that they lost stays lost."""
        self._faults.clear()
        self.record("disk-heal")

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        inode = find_file(self.names.root, split(path))
        if not (0 <= position < len(inode.content) and 0 <= bit < 8):
            raise ValueError(
                f"{path!r} has {len(inode.content)} bytes: no bit {bit} at position {position}"
            )
        inode.flip_bit(position, bit)
        self.record("disk-flip", path, position, bit)

    def cut(self, path: str, size: int) -> None:
        """Lose what a file holds after its first `size` bytes."""
        inode = find_file(self.names.root, split(path))
        if not 0 <= size <= len(inode.content):
            raise ValueError(f"{path!r} has {len(inode.content)} bytes: it has no cut at {size}")
        inode.cut(size)
        self.record("disk-cut", path, size)

    def files(self, kind: str | None = None) -> dict[str, int]:
        """Return the sizes of the files of a kind (see `kinds`), or of all files, by path."""
        paths = {joined(parts): inode for parts, inode in self.names.paths()}
        return {
            path: len(paths[path].content)
            for path in sorted(paths)
            if kind in (None, file_kind(path))
        }

    def on_operation(
        self,
        action: Callable[[], object],
        operations: Iterable[str],
        *,
        kind: str | None = None,
        prefix: str = "/",
        nth: int = 1,
        instead: bool = False,
    ) -> DiskTrigger:
        """Run `action` once, at the nth of these operations from now on, on files of a kind whose
        path has a prefix. See `DiskTrigger` for the moment."""
        if nth < 1:
            raise ValueError(f"there is no operation number {nth}: the first is 1")
        trigger = DiskTrigger(action, _checked(operations), kind, prefix, nth, instead)
        self._triggers.append(trigger)
        return trigger

    def forget(self, trigger: DiskTrigger) -> None:
        """End a trigger, unless it has fired."""
        if trigger in self._triggers:
            self._triggers.remove(trigger)

    def evict(self) -> None:
        """Drop clean pages from the page cache. Reads then show what a failed sync lost."""
        for inode in self.names.files():
            inode.evict()
        self.record("disk-evict")

    # Called by SimDisk and SimFile before each operation

    def check_alive(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise NodeCrashed("this disk or file belongs to a crashed process")
        if self.has_stopped:
            raise NodeCrashed("stop_after stopped the node at this change")

    def begin(self, operation: str, path: str, *details: Detail) -> None:
        """Count and trace an operation. Raise its injected error, if any."""
        if error := self.fails(operation, path, *details):
            raise error

    def fails(self, operation: str, path: str, *details: Detail) -> OSError | None:
        """Count and trace an operation. Return its injected error, if any. For operations that have
        an effect even if they fail."""
        if operation in CHANGING:
            self._count_change()
            self.record(operation, path, *details)
        if self._triggers:
            self._fire(operation, path)
        for fault in self._faults:
            if fault.applies(operation, path):
                self.record("disk-error", operation, path, fault.number)
                return OSError(fault.number, os.strerror(fault.number) + " (injected)", path)
        return None

    def _fire(self, operation: str, path: str) -> None:
        fired = [trigger for trigger in self._triggers if trigger.matches(operation, path)]
        for trigger in fired:
            self._triggers.remove(trigger)
            self.record("disk-trigger", operation, path)
            self._call_next(trigger.action)
        if any(trigger.instead for trigger in fired):
            self._changes_left = -1
            raise NodeCrashed(f"a trigger stopped the node before its {operation} of {path}")

    def _count_change(self) -> None:
        if self._changes_left is None:
            return
        self._changes_left -= 1
        if self._changes_left < 0:
            raise NodeCrashed("stop_after stopped the node at this change")

    def free_bytes(self) -> int | None:
        """Return the free space, or None if it is unlimited."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - sum(len(inode.content) for inode in self.names.files()))


def _checked(operations: Iterable[str]) -> frozenset[str]:
    known = frozenset(operations)
    unknown = known - OPERATIONS
    if unknown:
        raise ValueError(
            f"unknown disk operations {sorted(unknown)}; known are {sorted(OPERATIONS)}"
        )
    return known
