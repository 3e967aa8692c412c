"""Count leader elections under load that must not cause any: a broker paused for two seconds,
closed connections, saturated cores.

Linux only: pidfd_getfd gives access to the sockets of another process (same user, or root).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.cluster_peers import BROKERS, ClusterPeer
from bench.cluster_state import create_topic, elections, quorum, wait_healthy
from bench.results import Section

TOPIC = "watched"
PAUSE_S = 2.0
SATURATED_S = 10.0
# Longer than the time after which the controller fences a disconnected broker.
AFTERMATH_S = 1.0
DROPS = 5
_PIDFD_GETFD = 438
_ESTABLISHED = "01"


class Watch:
    """Counts elections of the quorum's leader, and of the leaders of a topic with two leaders on
    each broker."""

    def __init__(self, peer: ClusterPeer) -> None:
        self._peer = peer
        create_topic(peer.bootstrap, TOPIC, [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 2)
        self._seen = self._elections()

    def report(self, section: Section, label: str) -> None:
        before, self._seen = self._seen, self._elections()
        section.row(
            label,
            str(self._seen[0] - before[0]),
            str(self._seen[1] - before[1]),
            "0 partition leaders",
        )

    def reset(self) -> None:
        """Ignore the elections until now."""
        self._seen = self._elections()

    def _elections(self) -> tuple[int, int]:
        return elections(self._peer.bootstrap, TOPIC), quorum(self._peer.bootstrap).leader_epoch


def false_alarms(section: Section, peer: ClusterPeer, watch: Watch) -> None:
    watch.reset()
    for label, alarm in _alarms(peer):
        wait_healthy(peer.bootstrap, BROKERS)
        alarm()
        time.sleep(AFTERMATH_S)
        watch.report(section, label)


def _alarms(peer: ClusterPeer) -> list[tuple[str, Callable[[], None]]]:
    return [
        (
            f"a broker paused for {PAUSE_S:.0f} s (SIGSTOP), not the active controller",
            lambda: _pause(peer, is_controller=False),
        ),
        (
            f"the same, the active controller (its quorum may elect another after {PAUSE_S:.0f} s)",
            lambda: _pause(peer, is_controller=True),
        ),
        (
            f"all connections of a broker to the active controller closed, {DROPS} times",
            lambda: _drop(peer),
        ),
        (f"two busy loops per core for {SATURATED_S:.0f} s", _saturate),
    ]


def _pause(peer: ClusterPeer, *, is_controller: bool) -> None:
    active = quorum(peer.bootstrap).leader_id
    pid = next(pid for node, pid in peer.pids().items() if (node == active) == is_controller)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSE_S)
    finally:
        os.kill(pid, signal.SIGCONT)


def _saturate() -> None:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        time.sleep(SATURATED_S)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _drop(peer: ClusterPeer) -> None:
    """Close all connections of a broker to the active controller: heartbeats, forwarded requests
    and fetches of the metadata log."""
    for _number in range(DROPS):
        leader = quorum(peer.bootstrap).leader
        port = int(leader.endpoints[0].rpartition(":")[2])
        pid = next(pid for node, pid in peer.pids().items() if node != leader.id)
        if not drop_connections(pid, port):
            raise SystemExit(f"process {pid} has no connection to port {port}; cannot close any")
        time.sleep(AFTERMATH_S)


def drop_connections(pid: int, port: int) -> int:
    """Shut down a process's connections to a local port; return their number."""
    inodes = {
        fields[9]
        for fields in _tcp()
        if fields[3] == _ESTABLISHED and int(fields[2].rpartition(":")[2], 16) == port
    }
    dropped = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # The descriptor was closed meanwhile.
            if str(link.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                with socket.socket(fileno=_descriptor_of(pid, int(link.name))) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
                    dropped += 1
    return dropped


def _tcp() -> list[list[str]]:
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def _descriptor_of(pid: int, descriptor: int) -> int:
    """Return a copy of another process's descriptor."""
    process = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(
            ctypes.get_errno(), f"pidfd_getfd of process {pid}: {os.strerror(ctypes.get_errno())}"
        )
    return int(copy)
