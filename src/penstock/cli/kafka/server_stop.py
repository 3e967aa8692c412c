"""kafka-server-stop.sh: stop the nodes that kafka-server-start.sh started, by id or role."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from penstock.cli.kafka import running_servers
from penstock.cli.kafka.options import Option, Options, Refused

_OPTIONS = {
    "node-id": Option("Only the node with this id.", "Integer"),
    "process-role": Option("Only nodes with these process.roles.", "String"),
}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    try:
        options = Options(
            _OPTIONS, words or ["-"], "Stop the nodes that kafka-server-start.sh started."
        )
        node_id, roles = options.number("node-id"), options.value("process-role")
        number = _signal(os.environ.get("SIGNAL", "TERM"))
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    if node_id is not None and roles is not None:
        print(
            "When both node-id and process-role are provided, the value for node-id will take "
            "precedence"
        )
    servers = running_servers.find()
    if not servers:
        print("No kafka server to stop")
        return 1
    for server in servers:
        if server.node_id == node_id if node_id is not None else roles in (None, server.roles):
            os.kill(server.pid, number)
    return 0


def _signal(name: str) -> signal.Signals:
    try:
        return (
            signal.Signals(int(name))
            if name.isdecimal()
            else signal.Signals[f"SIG{name.removeprefix('SIG')}"]
        )
    except (KeyError, ValueError):
        raise Refused(f"SIGNAL={name} is not a signal") from None
