"""How `penstock nodes` speaks to the `penstock up` of a directory: a Unix socket in it, one request
and one answer a connection, as JSON.

A lock in the directory is held by `up` and all its nodes: while one of them lives, nobody else
begins there.
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
# A node that was killed together with its `up` is gone within this.
_LOCK_PATIENCE_S = 5.0


class ControlError(ValueError):
    """Why nothing was done."""


class NobodyThere(ControlError):
    """No `up` works in the directory."""


def lock(directory: Path) -> int:
    """Held until all processes that have the descriptor have ended. ControlError where another `up`
    works here."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ControlError(
                    f"another penstock up works in {directory}: end it first, or use another --dir"
                ) from None
            time.sleep(0.02)


Answer = dict[str, Any]
# Gives the answer once there is one.
Progress = Callable[[], Answer | None]


class ControlServer:
    """The side of `up`. `begin` takes a request up, or refuses it with a ControlError."""

    def __init__(
        self, directory: Path, selector: selectors.BaseSelector, begin: Callable[[Answer], Progress]
    ) -> None:
        """Under the lock; what an earlier `up` left is replaced. A path may be longer than a
        socket's name, hence the relative one."""
        self._directory, self._selector, self._begin = directory, selector, begin
        self._under_way: dict[socket.socket, Progress] = {}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.chdir(directory):
            Path(SOCKET).unlink(missing_ok=True)
            listener.bind(SOCKET)
        listener.listen()
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def settle(self) -> None:
        """Answers what is done."""
        for connection, progress in list(self._under_way.items()):
            answer = progress()
            if answer is not None:
                self._answer(connection, answer)

    def close(self) -> None:
        (self._directory / SOCKET).unlink(missing_ok=True)

    def _accept(self, listener: socket.socket) -> None:
        connection, _address = listener.accept()
        connection.setblocking(False)
        gathered = bytearray()
        self._selector.register(
            connection, selectors.EVENT_READ, lambda: self._read(connection, gathered)
        )

    def _read(self, connection: socket.socket, gathered: bytearray) -> None:
        piece = connection.recv(MAX_REQUEST_BYTES)
        gathered += piece
        if not piece or len(gathered) > MAX_REQUEST_BYTES:
            self._close(connection)
        elif gathered.endswith(b"\n"):
            try:
                self._under_way[connection] = self._begin(json.loads(gathered))
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._answer(connection, {"error": str(error)})

    def _answer(self, connection: socket.socket, answer: Answer) -> None:
        """It fits into the socket's buffer. Who did not wait for it is not told."""
        with contextlib.suppress(ConnectionError):
            connection.sendall(json.dumps(answer).encode() + b"\n")
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._under_way.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()


def ask(directory: Path, request: dict[str, Any], timeout_s: float) -> list[dict[str, Any]]:
    """The nodes after the request was carried out. ControlError says why it was not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with contextlib.chdir(directory):
                connection.connect(SOCKET)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_read_line(connection))
        except (FileNotFoundError, NotADirectoryError, ConnectionError) as error:
            raise NobodyThere(f"no penstock up works in {directory}") from error
        except TimeoutError:
            raise ControlError(
                f"it was not done within {timeout_s:g} s: {request['do']} goes on, see penstock "
                "nodes list"
            ) from None
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    nodes: list[dict[str, Any]] = answer["nodes"]
    return nodes


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(MAX_REQUEST_BYTES)
        if not piece:
            raise ConnectionResetError("penstock up went away before it answered")
        line += piece
    return line
