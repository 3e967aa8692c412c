"""What this machine knows of a cluster: the directory of `penstock up`, its processes and logs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from shlex import quote
from typing import Any

from penstock.cli.cluster import control, layout
from penstock.cli.cluster.directory import SINGLE_NODE, read_bootstrap
from penstock.health.log_lines import read_log
from penstock.health.observations import Event, Node, NodeState

# The end of a node's log that is read: hours of a quiet node, minutes of a busy one.
MAX_LOG_BYTES = 512 * 1024
# `penstock up` answers at once, unless its machine is overloaded.
_CONTROL_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster's directory. `bootstrap` is where its brokers listen."""

    bootstrap: str
    nodes: dict[int, Node]
    events: tuple[Event, ...]


def find_cluster(directory: Path) -> bool:
    """Return True if the directory is one of `penstock up`."""
    single = directory / str(SINGLE_NODE) / layout.PROPERTIES
    return (directory / layout.CLUSTER).exists() or single.exists()


def read_cluster(directory: Path, zone: tzinfo) -> LocalCluster:
    """Return the nodes of a directory of `penstock up`, their processes, and what they logged."""
    bootstrap, quoted = read_bootstrap(directory), quote(str(directory))
    cluster = layout.load(directory)
    if cluster is None:
        entries: list[dict[str, Any]] = [
            {"id": SINGLE_NODE, "pid": None, "roles": ["broker", "controller"], "state": None}
        ]
        restart = f"penstock up --dir {quoted}"
    else:
        try:
            entries = control.send_request(directory, {"do": "list"}, _CONTROL_TIMEOUT_S)
            restart = f"penstock nodes restart {{id}} --dir {quoted}"
        except control.ControlError:
            entries = [layout.describe_stopped(node, directory) for node in cluster.nodes]
            restart = f"penstock up --dir {quoted}"
    nodes: dict[int, Node] = {}
    events: list[Event] = []
    for entry in entries:
        node_id = entry["id"]
        node, logged = read_node(
            Node(
                node_id,
                None if entry["state"] is None else NodeState(entry["state"]),
                tuple(entry["roles"]),
                restart=restart.replace("{id}", str(node_id)),
                resume=f"penstock nodes resume {node_id} --dir {quoted}",
            ),
            _tail(directory / str(node_id) / layout.LOG, MAX_LOG_BYTES),
            entry["pid"],
            zone,
        )
        nodes[node_id] = node
        events += logged
    return LocalCluster(bootstrap, nodes, in_order(events))


def read_node(
    node: Node, log_text: str, pid: int | None, zone: tzinfo
) -> tuple[Node, tuple[Event, ...]]:
    """Return a node with what its log and its process show, and what it logged."""
    log = read_log(node.id, log_text, zone)
    found = replace(node, last_log_line=log.last_line, last_log_ms=log.last_ms, **_process(pid))
    return found, log.events


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.at_ms))


def _tail(file: Path, limit: int) -> str:
    """Return the end of a log; empty if there is none yet."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(opened.seek(0, os.SEEK_END) - limit, 0))
            return opened.read(limit).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _process(pid: int | None) -> dict[str, Any]:
    """Return the limits and the start of a process, where /proc has them."""
    if pid is None:
        return {}
    process = Path("/proc") / str(pid)
    try:
        limits = (process / "limits").read_text()
        used = len(list((process / "fd").iterdir()))
        ticks = int((process / "stat").read_text().rpartition(") ")[2].split()[19])
        booted = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        # The process has just ended, belongs to another user, or this is not Linux.
        return {}
    soft = next((line.split()[3] for line in limits.splitlines() if "open files" in line), "")
    return {
        "open_files": used,
        "open_files_limit": int(soft) if soft.isdecimal() else None,
        "started_ms": int((booted + ticks / os.sysconf("SC_CLK_TCK")) * 1000),
    }
