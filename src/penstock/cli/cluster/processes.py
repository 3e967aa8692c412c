"""A node's process, forked from `penstock up` and controlled by signals.

Forking is faster than starting an interpreter, and shares the memory of imported modules. It
needs a parent without threads and without an event loop, as the supervisor is. Knows nothing
about control requests, nor about what the process runs.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from penstock.cli.cluster.layout import LOG, NodeLayout

READY = b"ready\n"
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

# Runs a node until SIGTERM, and calls back when it is ready.
Serve = Callable[[Path, Callable[[], None]], int]


class State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class NodeProcess:
    """A node and, while it is alive, its process. `update` takes the status of waitpid."""

    def __init__(self, layout: NodeLayout, home: Path) -> None:
        self.layout = layout
        self.home = home
        self.pid: int | None = None
        self.state = State.STOPPED
        self.ready = False
        self.ending = "was never started"
        self.channel: socket.socket | None = None

    def start(self, serve: Serve, inherited: Iterable[socket.socket]) -> None:
        """Fork the process, which closes the sockets it inherits."""
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for inherited_socket in (ours, *inherited):
                inherited_socket.close()
            _run_child(lambda: _run_node(self, serve, theirs, parent))
        theirs.close()
        ours.setblocking(False)
        self.channel, self.pid, self.state, self.ready = ours, pid, State.RUNNING, False

    def signal(self, *numbers: signal.Signals) -> None:
        """Send signals. The pid is set only until the process is reaped, so that it cannot belong
        to another process."""
        for number in numbers:
            if self.pid is not None:
                os.kill(self.pid, number)

    def read_channel(self) -> bool:
        """Read the process's readiness. Returns False if it closed the channel."""
        data = self.channel.recv(len(READY)) if self.channel is not None else b""
        self.ready = self.ready or bool(data)
        return bool(data)

    def update(self, status: int) -> None:
        if os.WIFSTOPPED(status):
            self.state = State.PAUSED
        elif os.WIFCONTINUED(status):
            self.state = State.RUNNING
        else:
            code = os.waitstatus_to_exitcode(status)
            self.ending = (
                f"ended by {signal.Signals(-code).name}"
                if code < 0
                else f"ended with exit code {code}"
            )
            self.pid, self.state, self.ready = None, State.STOPPED, False

    def exit_reason(self) -> str:
        """Return how the process ended, with the last line of its log."""
        log = self.home / LOG
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        return (
            f"node {self.layout.id} {self.ending}; the last line of its log {log}: {last}"
            if last
            else f"node {self.layout.id} {self.ending}"
        )


def fork(work: Callable[[], int], inherited: Iterable[socket.socket]) -> int:
    """Fork a child that runs `work` and exits with its result; return its pid.

    The child is killed if this process ends first.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        for inherited_socket in inherited:
            inherited_socket.close()

        def run_work() -> int:
            _reset_signals()
            _die_with_parent(parent, None)
            return work()

        _run_child(run_work)
    return pid


def _run_child(work: Callable[[], int]) -> None:
    """Run the work and exit. Never returns: the callers' frames belong to the parent."""
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - the process exits here; report any error before
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_node(node: NodeProcess, serve: Serve, channel: socket.socket, parent: int) -> int:
    _reset_signals()
    _redirect_output(node.home / LOG)
    _die_with_parent(parent, channel)
    _set_name(f"penstock-{node.layout.id}")
    return serve(node.home, lambda: channel.sendall(READY))


def _reset_signals() -> None:
    """Leave the parent's process group and drop its signal handlers.

    Ctrl-C must reach only the parent, which stops the nodes in order.
    """
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _redirect_output(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _die_with_parent(parent: int, channel: socket.socket | None) -> None:
    """Kill this process when the parent ends.

    Linux does this, even for a paused process. Elsewhere a thread waits until the parent's end of
    the channel is closed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    elif channel is not None:
        kill_on_close(channel)
    if os.getppid() != parent:  # The parent ended before prctl.
        os.kill(os.getpid(), signal.SIGKILL)


def kill_on_close(channel: socket.socket) -> None:
    """Kill this process when the other end of the channel is closed."""

    def wait() -> None:
        while channel.recv(1):
            continue
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _set_name(name: str) -> None:
    """Set the process name that ps and top show."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
