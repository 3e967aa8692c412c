"""`penstock up` of a cluster: starts the nodes, watches them, does what `penstock nodes` asks for,
and ends them when it is told to end.

One thread and no event loop, so that it may fork at any time. A node that dies is not started
again: that is for its user to say.
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

from penstock.cli import control
from penstock.cli.layout import Layout, described, save
from penstock.cli.processes import NodeProcess, Serve, State, fork

STOP_PATIENCE_S = 60.0

# What a request sends, and the state that it waits for. A paused process ends only once it goes on.
_SIGNALS = {
    "kill": ((signal.SIGKILL,), State.STOPPED),
    "stop": ((signal.SIGTERM, signal.SIGCONT), State.STOPPED),
    "pause": ((signal.SIGSTOP,), State.PAUSED),
    "resume": ((signal.SIGCONT,), State.RUNNING),
}


class Supervisor:
    """`probe` runs in a process of its own until the cluster is ready, `announce` then; `grow`
    makes the layout with one more broker."""

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        serve: Serve,
        *,
        probe: Callable[[], int],
        announce: Callable[[], None],
        grow: Callable[[Layout], Layout],
    ) -> None:
        self._directory, self._layout = directory, layout
        self._serve, self._probe, self._announce, self._grow = serve, probe, announce, grow
        self._nodes = {
            node.id: NodeProcess(node, directory / str(node.id)) for node in layout.nodes
        }
        self._selector = selectors.DefaultSelector()
        self._prober: int | None = None
        self._announced = False
        self._stopping_until: float | None = None
        self._failure: str | None = None

    def run(self) -> str | None:
        """Until told to end and all nodes have ended. Gives why it could not begin, if so."""
        wakeups, wakeup = socket.socketpair()
        for one in (wakeups, wakeup):
            one.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)
        self._selector.register(
            wakeups, selectors.EVENT_READ, lambda: self._signalled(wakeups.recv(1024))
        )
        requests = control.ControlServer(self._directory, self._selector, self._begin)
        for node in self._nodes.values():
            self._start(node)
        while self._stopping_until is None or self._alive():
            for key, _events in self._selector.select(self._patience()):
                key.data()
            self._look()
            requests.settle()
        requests.close()
        return self._failure

    # What happens.

    def _signalled(self, numbers: bytes) -> None:
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
            if pid == self._prober and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                self._prober = None
                self._probed(os.waitstatus_to_exitcode(status))
            for node in self._nodes.values():
                if node.pid == pid:
                    node.changed(status)
                    self._tell(node)

    def _tell(self, node: NodeProcess) -> None:
        """Before the cluster was ready, a node that ends is a failure; later it is news."""
        if node.state is not State.STOPPED or self._stopping_until is not None:
            return
        if self._announced:
            print(f"penstock up: node {node.layout.id} {node.ending}", file=sys.stderr, flush=True)
        else:
            self._failure = node.why()
            self._stop()

    def _probed(self, code: int) -> None:
        if self._stopping_until is not None:
            return
        if code == 0:
            self._announced = True
            self._announce()
        else:
            self._failure = self._failure or "the cluster did not become ready"
            self._stop()

    def _stop(self) -> None:
        """Brokers before controllers, which they need to leave cleanly. Told twice, or after a
        while, nobody is waited for any longer."""
        if self._prober is not None:
            os.kill(self._prober, signal.SIGKILL)
        if self._stopping_until is not None:
            self._stopping_until = time.monotonic()
            return
        self._stopping_until = time.monotonic() + STOP_PATIENCE_S
        for node in self._nodes.values():
            if node.layout.is_broker:
                node.signal(signal.SIGTERM, signal.SIGCONT)

    def _look(self) -> None:
        """What follows from what happened."""
        if self._stopping_until is not None:
            late = time.monotonic() >= self._stopping_until
            brokers = any(
                node.pid is not None for node in self._nodes.values() if node.layout.is_broker
            )
            for node in self._nodes.values():
                if late:
                    node.signal(signal.SIGKILL)
                elif not brokers:
                    node.signal(signal.SIGTERM, signal.SIGCONT)
        elif (
            not self._announced
            and self._prober is None
            and all(node.ready for node in self._nodes.values())
        ):
            self._prober = fork(self._probe, self._sockets())

    def _alive(self) -> bool:
        return any(node.pid is not None for node in self._nodes.values())

    def _patience(self) -> float | None:
        return (
            None
            if self._stopping_until is None
            else max(0.0, self._stopping_until - time.monotonic()) + 0.05
        )

    # Nodes.

    def _start(self, node: NodeProcess) -> None:
        node.start(self._serve, self._sockets())
        channel = node.channel
        if channel is not None:
            self._selector.register(
                channel, selectors.EVENT_READ, lambda: self._heard(node, channel)
            )

    def _heard(self, node: NodeProcess, channel: socket.socket) -> None:
        if channel is not node.channel or not node.heard():
            self._selector.unregister(channel)
            channel.close()

    def _sockets(self) -> list[socket.socket]:
        return [
            key.fileobj
            for key in self._selector.get_map().values()
            if isinstance(key.fileobj, socket.socket)
        ]

    # Requests.

    def _begin(self, request: control.Answer) -> control.Progress:
        what = request["do"]
        if what == "list":
            answer: control.Answer = {
                "nodes": [self._describe(node) for node in self._nodes.values()]
            }
            return lambda: answer
        if self._stopping_until is not None:
            raise control.ControlError("penstock up is ending")
        if what == "add":
            return self._carry_out("start", [self._add()])
        return self._carry_out(
            what, [self._nodes[self._layout.node(int(one)).id] for one in request["ids"]]
        )

    def _carry_out(self, what: str, nodes: list[NodeProcess]) -> control.Progress:
        if what == "start":
            for node in nodes:
                if node.pid is None:
                    self._start(node)
            return self._until(nodes, lambda node: node.ready)
        if what not in _SIGNALS:
            raise control.ControlError(f"{what!r} is nothing that can be done with a node")
        for node in nodes:
            if node.pid is None:
                raise control.ControlError(f"node {node.layout.id} is not running")
        numbers, state = _SIGNALS[what]
        for node in nodes:
            node.signal(*numbers)
        return self._until(nodes, lambda node: node.state is state)

    def _until(
        self, nodes: list[NodeProcess], done: Callable[[NodeProcess], bool]
    ) -> control.Progress:
        """A node that ends instead is an error."""

        def progress() -> control.Answer | None:
            waiting = [node for node in nodes if not done(node)]
            ended = next((node for node in waiting if node.pid is None), None)
            if ended is not None:
                return {"error": ended.why()}
            return None if waiting else {"nodes": [self._describe(node) for node in nodes]}

        return progress

    def _add(self) -> NodeProcess:
        self._layout = self._grow(self._layout)
        save(self._directory, self._layout)
        layout = self._layout.nodes[-1]
        node = self._nodes[layout.id] = NodeProcess(layout, self._directory / str(layout.id))
        return node

    def _describe(self, node: NodeProcess) -> control.Answer:
        return {**described(node.layout, self._directory), "pid": node.pid, "state": node.state}
