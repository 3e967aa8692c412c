"""The nodes that kafka-server-start.sh started on this machine for this user, which are those that
kafka-server-stop.sh may stop.

Each has a file that it holds a lock on while it lives: neither a crash nor a process id that is
used again can mislead.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    node_id: int
    # As the file says: broker,controller.
    roles: str


def enter(node_id: int, roles: str) -> int:
    """Holds the entry of this process until it ends, by the descriptor given back."""
    own = Started(os.getpid(), node_id, roles)
    descriptor = os.open(
        _directory() / f"{own.pid}.json", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600
    )
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(asdict(own)).encode())
    return descriptor


def alive() -> list[Started]:
    return sorted(_alive(), key=lambda one: one.node_id)


def _alive() -> Iterator[Started]:
    for file in _directory().glob("*.json"):
        with file.open("rb") as entry:
            try:
                fcntl.flock(entry, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield Started(**json.load(entry))
            else:
                file.unlink(missing_ok=True)


def _directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"penstock-servers-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to someone else: remove it, or set TMPDIR")
    return directory
