"""The process of a test cluster: it imports the broker once and forks a process for each node.

A node that is killed is killed by SIGKILL, a paused one is stopped by SIGSTOP, as `penstock nodes`
does it. A restarted node is forked again, and imports nothing. Files are not synced: a process
that dies loses nothing by it, and tests do not cut the power.

The test holds the other end of a socket. It gets one line when the cluster is ready. When the
test's process ends, however it ends, the socket closes and the cluster stops.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from penstock.cli.cluster.layout import HOST, LOG, PROPERTIES, Layout, NodeLayout
from penstock.cli.cluster.supervisor import Supervisor
from penstock.cli.log_output import log_to
from penstock.config.node import NodeConfig, read_node_config
from penstock.handlers import load
from penstock.ids import uuid_text
from penstock.node.broker.formatting import format_directories
from penstock.start import serve_until_signal
from penstock.testing.faults.board import FaultBoard
from penstock.testing.faults.handlers import with_faults
from penstock.testing.faults.network import CuttableNetwork
from penstock.testing.unsynced_disk import UnsyncedDisk
from penstock.world import World
from penstock.world.real import RealRng, run

CLIENTS = "PLAINTEXT"
# Timeouts are short where tests wait for them; internal topics are small. What a test gives
# overrides these.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.two.phase.commit.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
}


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a node, by listener."""

    clients: int
    internal: int
    controller: int


def main(descriptor: int, directory: Path) -> int:
    """Run the cluster that the test describes in a line of JSON. Return the exit code."""
    lifeline = socket.socket(fileno=descriptor)
    with lifeline.makefile("rb") as lines:
        line = lines.readline()
    if not line.endswith(b"\n"):
        # The test needs no cluster. It may have been killed, and removes nothing then.
        lifeline.close()
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    given: dict[str, Any] = json.loads(line)
    brokers = int(given["brokers"])
    logging.basicConfig(level=logging.INFO)
    with contextlib.ExitStack() as stack:
        ports = {
            node_id: Ports(*(_reserve_port(stack, port) for port in wanted))
            for node_id, wanted in enumerate(_wanted_ports(brokers, given["ports"]), 1)
        }
        layout = Layout(
            given["cluster_id"] or uuid_text(RealRng().uuid()),
            (),
            given["settings"],
            tuple(
                NodeLayout(node_id, ("broker", "controller"), port.clients, port.controller)
                for node_id, port in ports.items()
            ),
        )
        for node_id in ports:
            _prepare(directory, layout.cluster_id, node_id, ports, given["settings"])
        gc.freeze()
        announcement = {
            "clients": ",".join(f"{HOST}:{port.clients}" for port in ports.values()),
            "internal": ",".join(f"{HOST}:{port.internal}" for port in ports.values()),
        }
        problem = Supervisor(
            directory,
            layout,
            partial(_serve, directory, ports),
            probe=lambda: _probe(layout),
            announce=lambda: lifeline.sendall(json.dumps(announcement).encode() + b"\n"),
            add_broker=_refuse_broker,
            lifeline=lifeline,
        ).run()
    if problem is None:
        # The test may have been killed, and removes nothing then.
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(problem, file=sys.stderr)  # noqa: T201 - the test reads it
    return int(problem is not None)


def _wanted_ports(brokers: int, first: list[int]) -> list[tuple[int, int, int]]:
    """Return the ports of each node, with 0 for any. A test may want certain ones for clients."""
    clients = [*first, *[0] * (brokers - len(first))]
    return [(port, 0, 0) for port in clients]


def _reserve_port(stack: contextlib.ExitStack, port: int) -> int:
    """Return a port that no other process gets until this one ends.

    A socket that is bound and does not listen keeps the kernel from giving the port to others, also
    while its node is down. On Linux another socket may bind and listen there if both have
    SO_REUSEADDR, which is set after `bind` so that two clusters cannot reserve the same port.
    Elsewhere the socket is closed at once, and the port could be lost in the meantime.
    """
    reserved = socket.socket()
    reserved.bind((HOST, port))
    number: int = reserved.getsockname()[1]
    if sys.platform == "linux":
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stack.enter_context(reserved)
    else:
        reserved.close()
    return number


def _prepare(
    directory: Path,
    cluster_id: str,
    node_id: int,
    ports: Mapping[int, Ports],
    settings: Mapping[str, str],
) -> None:
    """Write a node's server.properties and format its directory."""
    home, port = directory / str(node_id), ports[node_id]
    home.mkdir()
    factor, min_isr = str(min(len(ports), 3)), str(min(len(ports), 2))
    voters = (f"{voter}@{HOST}:{others.controller}" for voter, others in ports.items())
    values = {
        **_PROPERTIES,
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": min_isr,
        **settings,
        "node.id": str(node_id),
        "listeners": (
            f"{CLIENTS}://{HOST}:{port.clients},INTERNAL://{HOST}:{port.internal},"
            f"CONTROLLER://{HOST}:{port.controller}"
        ),
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(home / "data"),
    }
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    (home / PROPERTIES).write_text(text)
    format_directories(
        UnsyncedDisk(),
        RealRng(),
        _config(home),
        cluster_id,
        ignore_formatted=False,
        say=lambda _line: None,
    )


@cache
def _config(home: Path) -> NodeConfig:
    """Read a node's settings. Its process is forked afterwards, and does not read them again."""
    file = home / PROPERTIES
    return read_node_config(file.read_bytes(), str(file))


def _serve(
    directory: Path, ports: Mapping[int, Ports], home: Path, ready: Callable[[], None]
) -> int:
    """Run one node in its own process; return the exit code."""
    config, board = _config(home), FaultBoard(directory)
    logging.getLogger().handlers.clear()  # those of the host
    log_to(config, home / LOG)
    targets = {port.internal: node_id for node_id, port in ports.items()}
    targets |= {port.controller: node_id for node_id, port in ports.items()}

    async def serve(world: World) -> None:
        cuttable = replace(
            world,
            disk=UnsyncedDisk(),
            network=CuttableNetwork(world.network, board, config.node_id, targets),
        )
        await serve_until_signal(
            cuttable,
            config,
            lambda _bootstrap_servers: ready(),
            load=with_faults(load, board, config.node_id, CLIENTS),
        )

    run(serve)
    return 0


def _probe(layout: Layout) -> int:
    """Wait until every broker knows all others. A single one is ready when it serves."""
    if len(layout.brokers) > 1:
        from penstock.cli.cluster.launch import wait_ready

        run(lambda world: wait_ready(world, layout))
    return 0


def _refuse_broker(_layout: Layout) -> Layout:
    raise ValueError("a test cluster does not grow: start it with the brokers that the test needs")
