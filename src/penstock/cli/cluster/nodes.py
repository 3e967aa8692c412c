"""List and control the node processes of a running `penstock up` (penstock nodes)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster import control, layout
from penstock.cli.cluster.directory import local_servers
from penstock.cli.output import print_json, print_table
from penstock.cli.session import CommandFailed, fail, with_client

Directory = Annotated[Path, typer.Option("--dir", help="The directory of penstock up.")]
Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="The ids of the nodes.")]
Timeout = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait for completion.")
]
DEFAULT_DIRECTORY = Path("penstock-data")
TIMEOUT_S = 120.0


def list_command(
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array instead of a table.")
    ] = False,
) -> None:
    """List the nodes and their state."""
    nodes = _list("nodes list", directory)
    if as_json:
        print_json(nodes)
        return
    names = ("id", "pid", "roles", "port", "metrics", "state", "dir")
    shown = [
        {
            **node,
            "pid": node["pid"] or "-",
            "roles": ",".join(node["roles"]),
            "metrics": node.get("metrics") or "-",
        }
        for node in nodes
    ]
    print_table(
        [name.upper() for name in names], [[str(node[name]) for name in names] for node in shown]
    )


def kill_command(
    ids: Ids, directory: Directory = DEFAULT_DIRECTORY, timeout: Timeout = TIMEOUT_S
) -> None:
    """Kill nodes with SIGKILL, without a controlled shutdown."""
    _send("nodes kill", directory, {"do": "kill", "ids": ids}, timeout)


def pause_command(
    ids: Ids, directory: Directory = DEFAULT_DIRECTORY, timeout: Timeout = TIMEOUT_S
) -> None:
    """Pause nodes with SIGSTOP; their connections stay open."""
    _send("nodes pause", directory, {"do": "pause", "ids": ids}, timeout)


def resume_command(
    ids: Ids, directory: Directory = DEFAULT_DIRECTORY, timeout: Timeout = TIMEOUT_S
) -> None:
    """Resume paused nodes with SIGCONT."""
    _send("nodes resume", directory, {"do": "resume", "ids": ids}, timeout)


def restart_command(
    ids: Ids, directory: Directory = DEFAULT_DIRECTORY, timeout: Timeout = TIMEOUT_S
) -> None:
    """Stop nodes with SIGTERM if they run, start them, and wait until they are ready."""
    running = {
        node["id"] for node in _list("nodes restart", directory) if node["state"] != "stopped"
    }
    to_stop = [node_id for node_id in ids if node_id in running]
    if to_stop:
        _send("nodes restart", directory, {"do": "stop", "ids": to_stop}, timeout)
    started = _send("nodes restart", directory, {"do": "start", "ids": ids}, timeout)
    _wait_unfenced("nodes restart", directory, started)


def add_command(directory: Directory = DEFAULT_DIRECTORY, timeout: Timeout = TIMEOUT_S) -> None:
    """Add a broker to the cluster, wait until it is ready, and print its id."""
    added = _send("nodes add", directory, {"do": "add"}, timeout)
    _wait_unfenced("nodes add", directory, added)
    print(added[0]["id"])


def _list(command: str, directory: Path) -> list[dict[str, Any]]:
    """Return the nodes from the running `up` or, if none runs, from the layout file."""
    try:
        cluster = layout.load(directory)
    except layout.LayoutError as error:
        fail(command, str(error))
    if cluster is None:
        fail(
            command,
            f"{directory} has no cluster: create one with penstock up --brokers 3 --dir "
            f"{directory}",
        )
    try:
        return control.send_request(directory, {"do": "list"}, TIMEOUT_S)
    except control.NotRunning:
        return [layout.describe_stopped(node, directory.absolute()) for node in cluster.nodes]
    except control.ControlError as error:
        fail(command, str(error))


def _send(
    command: str, directory: Path, request: dict[str, Any], timeout_s: float
) -> list[dict[str, Any]]:
    try:
        return control.send_request(directory, request, timeout_s)
    except (control.ControlError, OSError) as error:
        fail(command, str(error))


def _wait_unfenced(command: str, directory: Path, nodes: list[dict[str, Any]]) -> None:
    """Wait until the cluster sees these brokers unfenced; a node is ready earlier."""
    from penstock.cli.cluster.launch import wait_unfenced

    ids = {node["id"] for node in nodes if "broker" in node["roles"]}
    cluster = layout.load(directory)
    if ids and cluster is not None:
        try:
            servers = local_servers(directory, cluster.bootstrap) or cluster.bootstrap
        except CommandFailed as error:
            fail(command, str(error))
        with_client(command, servers, lambda client: wait_unfenced(client, ids))
