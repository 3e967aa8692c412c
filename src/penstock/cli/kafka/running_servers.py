"""Registry of the nodes that kafka-server-start.sh started on this machine for this user.

kafka-server-stop.sh stops these. Each node holds a lock on its file while it is alive, so files of
crashed processes and reused process ids do not matter.
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
class Server:
    pid: int
    node_id: int
    # The value of process.roles: broker,controller.
    roles: str


def register(node_id: int, roles: str) -> int:
    """Register this process for as long as the returned descriptor is open."""
    server = Server(os.getpid(), node_id, roles)
    descriptor = os.open(
        _directory() / f"{server.pid}.json", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600
    )
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(asdict(server)).encode())
    return descriptor


def find() -> list[Server]:
    """Return the servers that are alive, sorted by node id."""
    return sorted(_alive(), key=lambda server: server.node_id)


def _alive() -> Iterator[Server]:
    for file in _directory().glob("*.json"):
        with file.open("rb") as entry:
            try:
                fcntl.flock(entry, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield Server(**json.load(entry))
            else:
                file.unlink(missing_ok=True)


def _directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"penstock-servers-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user: remove it, or set TMPDIR")
    return directory
