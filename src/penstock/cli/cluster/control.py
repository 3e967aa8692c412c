"""The control socket through which `penstock nodes` sends requests to `penstock up`.

A Unix socket in the cluster's directory; each connection carries one request and one reply as
JSON. `up` and all its nodes hold a lock in the directory, so no second `up` can start there while
one of these processes is alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOCKET = "control.sock"
LOCK = "up.lock"
MAX_REQUEST_BYTES = 64 * 1024
# Nodes that are killed with their `up` release the lock within this time.
_LOCK_TIMEOUT_S = 5.0


class ControlError(ValueError):
    """The request was refused or failed."""


class NotRunning(ControlError):
    """No `penstock up` runs in the directory."""


def lock(directory: Path) -> int:
    """Lock the directory until all processes that inherit the descriptor have ended.

    Raises ControlError if another `penstock up` runs in it.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ControlError(
                    f"another penstock up runs in {directory}: stop it first, or use another --dir"
                ) from None
            time.sleep(0.02)


Message = dict[str, Any]
# Returns the reply, or None while the request is in progress.
PendingReply = Callable[[], Message | None]


class ControlServer:
    """The server side, in `penstock up`. `begin` starts a request, or raises ControlError."""

    def __init__(
        self,
        directory: Path,
        selector: selectors.BaseSelector,
        begin: Callable[[Message], PendingReply],
    ) -> None:
        """Create the socket; the caller holds the lock, so a socket file of an earlier `up` is
        stale. The name is relative because an absolute path may exceed the limit of a socket
        address."""
        self._directory, self._selector, self._begin = directory, selector, begin
        self._pending: dict[socket.socket, PendingReply] = {}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.chdir(directory):
            Path(SOCKET).unlink(missing_ok=True)
            listener.bind(SOCKET)
        listener.listen()
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def send_replies(self) -> None:
        """Reply to the requests that are complete."""
        for connection, pending in list(self._pending.items()):
            reply = pending()
            if reply is not None:
                self._reply(connection, reply)

    def close(self) -> None:
        (self._directory / SOCKET).unlink(missing_ok=True)

    def _accept(self, listener: socket.socket) -> None:
        connection, _address = listener.accept()
        connection.setblocking(False)
        received = bytearray()
        self._selector.register(
            connection, selectors.EVENT_READ, lambda: self._read(connection, received)
        )

    def _read(self, connection: socket.socket, received: bytearray) -> None:
        chunk = connection.recv(MAX_REQUEST_BYTES)
        received += chunk
        if not chunk or len(received) > MAX_REQUEST_BYTES:
            self._close(connection)
        elif received.endswith(b"\n"):
            try:
                self._pending[connection] = self._begin(json.loads(received))
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._reply(connection, {"error": str(error)})

    def _reply(self, connection: socket.socket, reply: Message) -> None:
        """Send a reply, which fits into the socket's buffer. The client may have disconnected."""
        with contextlib.suppress(ConnectionError):
            connection.sendall(json.dumps(reply).encode() + b"\n")
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._pending.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()


def send_request(directory: Path, request: Message, timeout_s: float) -> list[dict[str, Any]]:
    """Send a request to the directory's `penstock up`, and return the nodes afterwards.

    Raises ControlError if the request fails, NotRunning if no `penstock up` runs.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with contextlib.chdir(directory):
                connection.connect(SOCKET)
            connection.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(_read_line(connection))
        except (FileNotFoundError, NotADirectoryError, ConnectionError) as error:
            raise NotRunning(f"no penstock up runs in {directory}: start it first") from error
        except TimeoutError:
            raise ControlError(
                f"{request['do']} did not complete within {timeout_s:g} s and continues: check "
                "with penstock nodes list"
            ) from None
    if "error" in reply:
        raise ControlError(str(reply["error"]))
    nodes: list[dict[str, Any]] = reply["nodes"]
    return nodes


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = connection.recv(MAX_REQUEST_BYTES)
        if not chunk:
            raise ConnectionResetError("penstock up ended before it replied")
        line += chunk
    return line
