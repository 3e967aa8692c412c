"""The nodes that `penstock up` keeps in one directory: which there are, where they listen, and the
server.properties each is given.

DIR/cluster.json is written at the first start and grows by `nodes add`; DIR/<id>/ holds a node's
settings, data and log. Knows no processes.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

CLUSTER = "cluster.json"
PROPERTIES = "server.properties"
LOG = "penstock.log"
HOST = "127.0.0.1"
DEFAULT_PORT = 9092
FIRST_CONTROLLER = 101
# Below the ports that the kernel gives to outgoing connections: one of those could be taken while a
# node is down.
_FREE_PORTS = range(16_384, 32_768)
# What `up` decides for each node. Given with -c, nodes could not be told apart.
_PER_NODE = (
    "node.id",
    "process.roles",
    "listeners",
    "controller.quorum.voters",
    "controller.listener.names",
    "broker.rack",
)
_DIRECTORIES = ("log.dir", "log.dirs", "metadata.log.dir")


class LayoutError(ValueError):
    """What was asked for contradicts what is kept, or itself."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Ports that a node does not have are None."""

    id: int
    roles: tuple[str, ...]
    broker_port: int | None = None
    controller_port: int | None = None

    @property
    def port(self) -> int:
        """The one it is known by."""
        return self.broker_port or self.controller_port or 0

    @property
    def is_broker(self) -> bool:
        return self.broker_port is not None


@dataclass(frozen=True, slots=True)
class Layout:
    cluster_id: str
    racks: tuple[str, ...]
    settings: Mapping[str, str]
    nodes: tuple[NodeLayout, ...] = field(default_factory=tuple)

    @property
    def brokers(self) -> tuple[NodeLayout, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def separate_controllers(self) -> int:
        return sum(not node.is_broker for node in self.nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.broker_port}" for node in self.brokers)

    def node(self, node_id: int) -> NodeLayout:
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise LayoutError(
            f"there is no node {node_id}: there are "
            f"{', '.join(str(node.id) for node in self.nodes)}"
        )


def plan(
    cluster_id: str,
    brokers: int,
    controllers: int | None,
    port: int,
    racks: Sequence[str],
    settings: Mapping[str, str],
) -> Layout:
    """A new cluster. Port 0 gives every broker a free one, and all keep theirs."""
    check_settings(settings)
    if port + brokers > 65_536:
        raise LayoutError(f"{brokers} brokers from port {port} on need ports beyond 65535")
    broker_ports = list(range(port, port + brokers)) if port else free_ports(brokers, set())
    ports, controller_ports = (
        iter(broker_ports),
        iter(free_ports(controllers or brokers, set(broker_ports))),
    )
    if controllers is None:
        both = ("broker", "controller")
        nodes = [
            NodeLayout(id_, both, next(ports), next(controller_ports))
            for id_ in range(1, brokers + 1)
        ]
    else:
        nodes = [NodeLayout(id_, ("broker",), next(ports)) for id_ in range(1, brokers + 1)]
        ids = range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        nodes += [NodeLayout(id_, ("controller",), None, next(controller_ports)) for id_ in ids]
    return Layout(cluster_id, tuple(racks), dict(settings), tuple(nodes))


def with_broker(layout: Layout) -> Layout:
    """One more broker, on the port after the last; the quorum stays as it is."""
    last = max(layout.brokers, key=lambda node: node.id)
    port = max(node.port for node in layout.brokers) + 1
    if port > 65_535 or not is_free(port):
        (port,) = free_ports(
            1,
            {
                port
                for node in layout.nodes
                for port in (node.broker_port, node.controller_port)
                if port
            },
        )
    return replace(layout, nodes=(*layout.nodes, NodeLayout(last.id + 1, ("broker",), port)))


def check_settings(settings: Mapping[str, str]) -> None:
    for name in _PER_NODE:
        if name in settings:
            raise LayoutError(
                f"{name} differs from node to node and is set by penstock up: it cannot be given "
                "with -c"
            )
    for name in _DIRECTORIES:
        absolute = [
            path for path in settings.get(name, "").split(",") if path.strip().startswith("/")
        ]
        if absolute:
            reason = (
                "nodes cannot share a directory. A relative one is taken to be in each node's own"
            )
            raise LayoutError(f"{name}={settings[name]} cannot be given with -c: {reason}")


def properties_of(
    layout: Layout, node: NodeLayout, home: Path, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Those given win over those kept."""
    voters = ",".join(
        f"{one.id}@{HOST}:{one.controller_port}" for one in layout.nodes if one.controller_port
    )
    ports = {"PLAINTEXT": node.broker_port, "CONTROLLER": node.controller_port}
    values = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items() if port),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": "data",
        **_copies(len(layout.brokers)),
        "group.initial.rebalance.delay.ms": "0",
        **layout.settings,
        **(given or {}),
    }
    if node.is_broker and layout.racks:
        values["broker.rack"] = layout.racks[(node.id - 1) % len(layout.racks)]
    for name in _DIRECTORIES:
        if name in values:
            values[name] = ",".join(str(home / path.strip()) for path in values[name].split(","))
    return values


def _copies(brokers: int) -> dict[str, str]:
    """Internal topics, as safe as the number of brokers allows and no safer than Kafka's."""
    factor, least = str(min(brokers, 3)), str(min(brokers, 2))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": least,
    }


def described(node: NodeLayout, directory: Path) -> dict[str, Any]:
    """As `nodes list --json` shows one that does not run."""
    home = str(directory / str(node.id))
    return {
        "id": node.id,
        "pid": None,
        "roles": list(node.roles),
        "port": node.port,
        "dir": home,
        "state": "stopped",
    }


def check_kept(file: Path, wanted: Mapping[str, str]) -> None:
    """A node's settings are those of its file, once it is written. What contradicts them is
    refused."""
    lines = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
    kept = {name: value for name, _equals, value in lines}
    for name, value in wanted.items():
        if kept.get(name) != value:
            raise LayoutError(
                f"{file} has {name}={kept.get(name)}, not {value}: change it there, or use "
                "another --dir"
            )


def check_same(
    kept: Layout,
    directory: Path,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: Sequence[str],
) -> None:
    """What is not given is as it was."""
    first = kept.brokers[0].port
    asked = (
        ("--brokers", brokers, len(kept.brokers)),
        ("--controllers", controllers, kept.separate_controllers),
        ("--port", port or None, first),
        ("--racks", ",".join(racks) or None, ",".join(kept.racks)),
    )
    for flag, value, is_kept in asked:
        if value is not None and value != is_kept:
            raise LayoutError(
                f"{directory} has a cluster with {flag} {is_kept or 'not given'}, not {value}: "
                "use another --dir"
            )


def load(directory: Path) -> Layout | None:
    """None where no cluster is kept."""
    file = directory / CLUSTER
    if not file.exists():
        return None
    try:
        kept = json.loads(file.read_text())
        nodes = tuple(
            NodeLayout(**{**node, "roles": tuple(node["roles"])}) for node in kept["nodes"]
        )
        return Layout(str(kept["cluster_id"]), tuple(kept["racks"]), dict(kept["settings"]), nodes)
    except (ValueError, TypeError, KeyError) as error:
        raise LayoutError(
            f"{file} cannot be read ({error!r}): it was written by penstock up, and should not be "
            "edited"
        ) from error


def save(directory: Path, layout: Layout) -> None:
    write_whole(directory / CLUSTER, json.dumps(asdict(layout), indent=1) + "\n")


def write_whole(file: Path, text: str) -> None:
    """Never half of it, whenever the process ends."""
    part = file.with_name(f"{file.name}.new")
    part.write_text(text)
    part.replace(file)


def free_ports(count: int, taken: Collection[int]) -> list[int]:
    found = (
        port
        for port in random.sample(_FREE_PORTS, len(_FREE_PORTS))
        if port not in taken and is_free(port)
    )
    return _first(count, found)


def _first(count: int, ports: Iterable[int]) -> list[int]:
    chosen = [port for port, _number in zip(ports, range(count), strict=False)]
    if len(chosen) < count:
        raise LayoutError(f"there are no {count} free ports on {HOST}")
    return chosen


def is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True
