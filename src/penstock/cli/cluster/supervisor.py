"""Start, stop and watch a cluster's processes, and execute control requests.

One thread and no event loop, so that it can fork at any time. A node that ends is not restarted;
the user decides with `penstock nodes restart`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.cli.cluster import control
from penstock.cli.cluster.layout import Layout, describe_stopped, save
from penstock.cli.cluster.processes import NodeProcess, Serve, State, fork

# Nodes that have not stopped within this time are killed.
STOP_TIMEOUT_S = 60.0

# The signals of each request, and the state that completes it. A paused process handles SIGTERM
# only after SIGCONT.
_SIGNALS = {
    "kill": ((signal.SIGKILL,), State.STOPPED),
    "stop": ((signal.SIGTERM, signal.SIGCONT), State.STOPPED),
    "pause": ((signal.SIGSTOP,), State.PAUSED),
    "resume": ((signal.SIGCONT,), State.RUNNING),
}


class Supervisor:
    """`probe` runs in a child process until the cluster is ready, then `announce` is called.
    `add_broker` returns the layout with another broker, whose directory it has prepared. The
    cluster stops when the other end of `lifeline` is closed."""

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        serve: Serve,
        *,
        probe: Callable[[], int],
        announce: Callable[[], None],
        add_broker: Callable[[Layout], Layout],
        lifeline: socket.socket | None = None,
    ) -> None:
        self._directory, self._layout = directory, layout
        self._serve, self._probe, self._announce = serve, probe, announce
        self._add_broker = add_broker
        self._lifeline = lifeline
        self._nodes = {
            node.id: NodeProcess(node, directory / str(node.id)) for node in layout.nodes
        }
        self._selector = selectors.DefaultSelector()
        self._probe_pid: int | None = None
        self._announced = False
        self._stopping_until: float | None = None
        self._failure: str | None = None

    def run(self) -> str | None:
        """Run until SIGTERM or SIGINT and all nodes have ended.

        Returns the reason if the cluster did not become ready, else None.
        """
        wakeups, wakeup = socket.socketpair()
        for end in (wakeups, wakeup):
            end.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)
        self._selector.register(
            wakeups, selectors.EVENT_READ, lambda: self._handle_signals(wakeups.recv(1024))
        )
        requests = control.ControlServer(self._directory, self._selector, self._begin)
        if self._lifeline is not None:
            lifeline = self._lifeline
            self._selector.register(
                lifeline, selectors.EVENT_READ, lambda: self._lifeline_closed(lifeline)
            )
        for node in self._nodes.values():
            self._start(node)
        while self._stopping_until is None or self._alive():
            for key, _events in self._selector.select(self._timeout()):
                key.data()
            self._advance()
            requests.send_replies()
        requests.close()
        return self._failure

    # Events

    def _handle_signals(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            self._reap()
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._probe_pid and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                self._probe_pid = None
                self._handle_probe_exit(os.waitstatus_to_exitcode(status))
            for node in self._nodes.values():
                if node.pid == pid:
                    node.update(status)
                    self._report_exit(node)

    def _report_exit(self, node: NodeProcess) -> None:
        """A node that ends before the cluster is ready is a failure; later it is only reported."""
        if node.state is not State.STOPPED or self._stopping_until is not None:
            return
        if self._announced:
            print(f"penstock up: node {node.layout.id} {node.ending}", file=sys.stderr, flush=True)
        else:
            self._failure = node.exit_reason()
            self._stop()

    def _handle_probe_exit(self, code: int) -> None:
        if self._stopping_until is not None:
            return
        if code == 0:
            self._announced = True
            self._announce()
        else:
            self._failure = self._failure or "the cluster did not become ready"
            self._stop()

    def _lifeline_closed(self, lifeline: socket.socket) -> None:
        self._selector.unregister(lifeline)
        self._stop()

    def _stop(self) -> None:
        """Stop brokers before controllers, which brokers need for a controlled shutdown.

        A second signal, or the timeout, kills the remaining nodes.
        """
        if self._probe_pid is not None:
            os.kill(self._probe_pid, signal.SIGKILL)
        if self._stopping_until is not None:
            self._stopping_until = time.monotonic()
            return
        self._stopping_until = time.monotonic() + STOP_TIMEOUT_S
        for node in self._nodes.values():
            if node.layout.is_broker:
                node.signal(signal.SIGTERM, signal.SIGCONT)

    def _advance(self) -> None:
        """Take the next step of starting or stopping the cluster."""
        if self._stopping_until is not None:
            timed_out = time.monotonic() >= self._stopping_until
            brokers_alive = any(
                node.pid is not None for node in self._nodes.values() if node.layout.is_broker
            )
            for node in self._nodes.values():
                if timed_out:
                    node.signal(signal.SIGKILL)
                elif not brokers_alive:
                    node.signal(signal.SIGTERM, signal.SIGCONT)
        elif (
            not self._announced
            and self._probe_pid is None
            and all(node.ready for node in self._nodes.values())
        ):
            self._probe_pid = fork(self._probe, self._sockets())

    def _alive(self) -> bool:
        return any(node.pid is not None for node in self._nodes.values())

    def _timeout(self) -> float | None:
        return (
            None
            if self._stopping_until is None
            else max(0.0, self._stopping_until - time.monotonic()) + 0.05
        )

    # Nodes

    def _start(self, node: NodeProcess) -> None:
        node.start(self._serve, self._sockets())
        channel = node.channel
        if channel is not None:
            self._selector.register(
                channel, selectors.EVENT_READ, lambda: self._read_channel(node, channel)
            )

    def _read_channel(self, node: NodeProcess, channel: socket.socket) -> None:
        if channel is not node.channel or not node.read_channel():
            self._selector.unregister(channel)
            channel.close()

    def _sockets(self) -> list[socket.socket]:
        return [
            key.fileobj
            for key in self._selector.get_map().values()
            if isinstance(key.fileobj, socket.socket)
        ]

    # Requests

    def _begin(self, request: control.Message) -> control.PendingReply:
        action = request["do"]
        if action == "list":
            reply: control.Message = {
                "nodes": [self._describe(node) for node in self._nodes.values()]
            }
            return lambda: reply
        if self._stopping_until is not None:
            raise control.ControlError("penstock up is stopping")
        if action == "add":
            return self._execute("start", [self._add()])
        return self._execute(
            action, [self._nodes[self._layout.node(int(node_id)).id] for node_id in request["ids"]]
        )

    def _execute(self, action: str, nodes: list[NodeProcess]) -> control.PendingReply:
        if action == "start":
            for node in nodes:
                if node.pid is None:
                    self._start(node)
            return self._reply_when(nodes, lambda node: node.ready)
        if action not in _SIGNALS:
            raise control.ControlError(f"{action!r} is not an action")
        for node in nodes:
            if node.pid is None:
                raise control.ControlError(f"node {node.layout.id} is not running")
        signals, state = _SIGNALS[action]
        for node in nodes:
            node.signal(*signals)
        return self._reply_when(nodes, lambda node: node.state is state)

    def _reply_when(
        self, nodes: list[NodeProcess], done: Callable[[NodeProcess], bool]
    ) -> control.PendingReply:
        """Reply when all nodes are done; a node that ends instead is an error."""

        def reply() -> control.Message | None:
            waiting = [node for node in nodes if not done(node)]
            ended = next((node for node in waiting if node.pid is None), None)
            if ended is not None:
                return {"error": ended.exit_reason()}
            return None if waiting else {"nodes": [self._describe(node) for node in nodes]}

        return reply

    def _add(self) -> NodeProcess:
        self._layout = self._add_broker(self._layout)
        save(self._directory, self._layout)
        layout = self._layout.nodes[-1]
        node = self._nodes[layout.id] = NodeProcess(layout, self._directory / str(layout.id))
        return node

    def _describe(self, node: NodeProcess) -> control.Message:
        stopped = describe_stopped(node.layout, self._directory)
        return {**stopped, "pid": node.pid, "state": node.state}
