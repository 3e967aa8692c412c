"""One process of a cluster on this machine: made by a fork of `penstock up`, told to stop, killed,
paused, resumed, and never outliving it.

A fork and not a new interpreter: what `up` has imported is there at once and shares its memory.
That needs a parent without threads and without an event loop, which `up` is. Knows nothing of
requests, nor of what the process does.
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

from penstock.cli.layout import LOG, NodeLayout

READY = b"ready\n"
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

# Runs a node until it is told to stop, and calls back when it serves.
Serve = Callable[[Path, Callable[[], None]], int]


class State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class NodeProcess:
    """A node and, while it lives, its process. What happened to it is told by `changed`, from
    waitpid."""

    def __init__(self, layout: NodeLayout, home: Path) -> None:
        self.layout = layout
        self.home = home
        self.pid: int | None = None
        self.state = State.STOPPED
        self.ready = False
        self.ending = "was never started"
        self.channel: socket.socket | None = None

    def start(self, serve: Serve, inherited: Iterable[socket.socket]) -> None:
        """The new process lets go of the sockets that it inherited."""
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for one in (ours, *inherited):
                one.close()
            _be_child(lambda: _run_node(self, serve, theirs, parent))
        theirs.close()
        ours.setblocking(False)
        self.channel, self.pid, self.state, self.ready = ours, pid, State.RUNNING, False

    def signal(self, *numbers: signal.Signals) -> None:
        """Only a process that was not reaped yet: its number cannot be another's."""
        for number in numbers:
            if self.pid is not None:
                os.kill(self.pid, number)

    def heard(self) -> bool:
        """Reads what the process says. False when it has closed its end."""
        said = self.channel.recv(len(READY)) if self.channel is not None else b""
        self.ready = self.ready or bool(said)
        return bool(said)

    def changed(self, status: int) -> None:
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

    def why(self) -> str:
        """How it ended, with the last that its log says."""
        log = self.home / LOG
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        return (
            f"node {self.layout.id} {self.ending}; its log {log} ends with: {last}"
            if last
            else f"node {self.layout.id} {self.ending}"
        )


def fork(work: Callable[[], int], inherited: Iterable[socket.socket]) -> int:
    """The process id of a child that runs the work and ends with its result; it ends with us,
    too."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        for one in inherited:
            one.close()

        def guarded() -> int:
            _leave_group()
            _end_with_parent(parent, None)
            return work()

        _be_child(guarded)
    return pid


def _be_child(work: Callable[[], int]) -> None:
    """Never returns: what is above in the stack belongs to the parent."""
    code = 1
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - the process ends here, and this is the last that can be told of it
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_node(node: NodeProcess, serve: Serve, channel: socket.socket, parent: int) -> int:
    _leave_group()
    _write_to(node.home / LOG)
    _end_with_parent(parent, channel)
    _set_name(f"penstock-{node.layout.id}")
    return serve(node.home, lambda: channel.sendall(READY))


def _leave_group() -> None:
    """Ctrl-C is for the parent, which stops its nodes in order; and its handlers are not ours."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _write_to(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _end_with_parent(parent: int, channel: socket.socket | None) -> None:
    """Linux kills us when the parent ends, even while we are paused; elsewhere a thread waits for
    its end of the channel to close."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    elif channel is not None:
        watch_end(channel)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def watch_end(channel: socket.socket) -> None:
    def wait() -> None:
        while channel.recv(1):
            continue
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _set_name(name: str) -> None:
    """What ps and top show."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
