"""The faults that a test has asked for, in files that the test and all nodes of its cluster share.

The test publishes faults as JSON and then advances a counter in a memory-mapped file. A node reads
the counter at each request, and the JSON when the counter has changed. So a fault counts from the
moment at which the test's call returns, also for a node that is paused or starts later, and no
message can be lost. A node counts each use of a fault in the same file, under a lock: `times` is
the number of requests of the whole cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The most faults that are in force together. Each has a counter of its uses.
MAX_FAULTS = 500
_COUNTERS, _FAULTS = "fault-counters", "faults.json"
_WORD_BYTES = 8

# What happens to a request: its response is late, it gets an error and is not handled, or its
# connection is closed before or after it is handled.
DELAY, FAIL, REFUSE, LOSE_RESPONSE = "delay", "fail", "refuse", "lose response"


@dataclass(frozen=True, slots=True)
class ApiFault:
    """A fault of clients' requests of one API. `slot` is the number of its counter. Without `times`
    it applies until it is removed, without `broker` on every broker."""

    slot: int
    kind: str
    api_key: int
    times: int | None = None
    broker: int | None = None
    delay_ms: float = 0.0
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """`cuts` are pairs of nodes without a network between them, the smaller id first."""

    apis: tuple[ApiFault, ...] = ()
    cuts: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def is_cut(self, first: int, second: int) -> bool:
        return (min(first, second), max(first, second)) in self.cuts


class FaultBoard:
    """The files in `directory`. Each process opens its own, since locks belong to open files."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / _FAULTS
        self._descriptor = os.open(directory / _COUNTERS, os.O_RDWR | os.O_CREAT, 0o644)
        size = (1 + MAX_FAULTS) * _WORD_BYTES
        os.ftruncate(self._descriptor, size)
        self._memory = mmap.mmap(self._descriptor, size)
        # The number of publications, then the uses of each fault.
        self._words = memoryview(self._memory).cast("Q")
        self._read = 0
        self._faults = Faults()

    def publish(self, faults: Faults) -> None:
        """Replace the faults. They count from the next request on."""
        temporary = self._file.with_suffix(".tmp")
        apis, cuts = [asdict(fault) for fault in faults.apis], sorted(faults.cuts)
        temporary.write_text(json.dumps({"apis": apis, "cuts": cuts}))
        temporary.replace(self._file)
        self._words[0] += 1

    @property
    def faults(self) -> Faults:
        """The faults that are in force now."""
        published = self._words[0]
        if published != self._read:
            found = json.loads(self._file.read_text())
            self._faults = Faults(
                tuple(ApiFault(**fault) for fault in found["apis"]),
                frozenset((first, second) for first, second in found["cuts"]),
            )
            self._read = published
        return self._faults

    def use(self, fault: ApiFault) -> bool:
        """Count a use of a fault. Return False if it has been used as often as it may be."""
        with self._locked():
            uses = self._words[1 + fault.slot]
            if fault.times is not None and uses >= fault.times:
                return False
            self._words[1 + fault.slot] = uses + 1
            return True

    def uses(self, slot: int) -> int:
        return self._words[1 + slot]

    def reset(self, slot: int) -> None:
        """Set the counter of a new fault to zero."""
        self._words[1 + slot] = 0

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
