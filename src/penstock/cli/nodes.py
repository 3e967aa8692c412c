"""penstock nodes: the processes of a cluster that `penstock up` runs on this machine, asked for
through that `up`, their parent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import control, layout
from penstock.cli.session import fail, table, with_client

Directory = Annotated[Path, typer.Option("--dir", help="The directory that penstock up was given.")]
Ids = Annotated[list[int], typer.Argument(metavar="ID...", help="The ids of the nodes.")]
Timeout = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait until it is done.")
]
HERE = Path("penstock-data")
PATIENCE_S = 120.0


def list_command(
    directory: Directory = HERE,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array, with everything.")
    ] = False,
) -> None:
    """Lists the nodes, and whether they run."""
    nodes = _list("nodes list", directory)
    if as_json:
        print(json.dumps(nodes, separators=(",", ":")))
        return
    names = ("id", "pid", "roles", "port", "state", "dir")
    shown = [
        {**node, "pid": node["pid"] or "-", "roles": ",".join(node["roles"])} for node in nodes
    ]
    for line in table(
        [name.upper() for name in names], [[str(node[name]) for name in names] for node in shown]
    ):
        print(line)


def kill_command(ids: Ids, directory: Directory = HERE, timeout: Timeout = PATIENCE_S) -> None:
    """Kills nodes (SIGKILL): they end at once, without goodbye."""
    _ask("nodes kill", directory, {"do": "kill", "ids": ids}, timeout)


def pause_command(ids: Ids, directory: Directory = HERE, timeout: Timeout = PATIENCE_S) -> None:
    """Pauses nodes (SIGSTOP): they stand still, with all their connections."""
    _ask("nodes pause", directory, {"do": "pause", "ids": ids}, timeout)


def resume_command(ids: Ids, directory: Directory = HERE, timeout: Timeout = PATIENCE_S) -> None:
    """Lets paused nodes go on (SIGCONT)."""
    _ask("nodes resume", directory, {"do": "resume", "ids": ids}, timeout)


def restart_command(ids: Ids, directory: Directory = HERE, timeout: Timeout = PATIENCE_S) -> None:
    """Stops nodes cleanly, if they run, and starts them; done when they serve again."""
    running = {
        node["id"] for node in _list("nodes restart", directory) if node["state"] != "stopped"
    }
    stopping = [one for one in ids if one in running]
    if stopping:
        _ask("nodes restart", directory, {"do": "stop", "ids": stopping}, timeout)
    _wait_unfenced(
        "nodes restart",
        directory,
        _ask("nodes restart", directory, {"do": "start", "ids": ids}, timeout),
    )


def add_command(directory: Directory = HERE, timeout: Timeout = PATIENCE_S) -> None:
    """Adds a broker to the cluster; done when it serves, with its id printed."""
    added = _ask("nodes add", directory, {"do": "add"}, timeout)
    _wait_unfenced("nodes add", directory, added)
    print(added[0]["id"])


def _list(command: str, directory: Path) -> list[dict[str, Any]]:
    """From the running `up`, or else from what it left."""
    try:
        kept = layout.load(directory)
    except layout.LayoutError as error:
        fail(command, str(error))
    if kept is None:
        fail(
            command,
            f"{directory} has no cluster: penstock up --brokers 3 --dir {directory} makes one",
        )
    try:
        return control.ask(directory, {"do": "list"}, PATIENCE_S)
    except control.NobodyThere:
        return [layout.described(node, directory.absolute()) for node in kept.nodes]
    except control.ControlError as error:
        fail(command, str(error))


def _ask(
    command: str, directory: Path, request: dict[str, Any], timeout_s: float
) -> list[dict[str, Any]]:
    try:
        return control.ask(directory, request, timeout_s)
    except (control.ControlError, OSError) as error:
        fail(command, str(error))


def _wait_unfenced(command: str, directory: Path, nodes: list[dict[str, Any]]) -> None:
    """A node says itself when it serves; that others know it as live is asked of them."""
    from penstock.cli.cluster_up import wait_unfenced

    ids = {node["id"] for node in nodes if "broker" in node["roles"]}
    kept = layout.load(directory)
    if ids and kept is not None:
        with_client(command, kept.bootstrap, lambda client: wait_unfenced(client, ids))
