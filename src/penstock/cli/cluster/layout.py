"""The nodes of a cluster's directory, with their ports and server.properties.

DIR/cluster.json is written at the first start and extended by `penstock nodes add`. DIR/<id>/ has
a node's settings, data and log. Knows nothing about processes.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

CLUSTER = "cluster.json"
PROPERTIES = "server.properties"
LOG = "penstock.log"
HOST = "127.0.0.1"
DEFAULT_PORT = 9092
# The port at which Prometheus's exporters for Kafka listen by convention.
DEFAULT_METRICS_PORT = 9404
METRICS = "penstock.metrics.listener"
METRICS_TOKEN = "penstock.metrics.token"
# The listener of a secure cluster, and the file of its secrets (`security.setup.cluster`).
SECURE_LISTENER = "SASL_SSL"
SECRETS_FILE = "secure.json"
CLIENT_PROPERTIES = "client.properties"
LIBRDKAFKA_PROPERTIES = "librdkafka.properties"
FIRST_CONTROLLER = 101
# Below the kernel's ephemeral ports: an outgoing connection could use one while its node is down.
_FREE_PORTS = range(16_384, 32_768)
# Settings that must differ between nodes; they cannot be given with -c.
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
    """The options are invalid, or contradict the existing layout."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A port is None if the node does not have the role."""

    id: int
    roles: tuple[str, ...]
    broker_port: int | None = None
    controller_port: int | None = None
    # None if the node was created by a release without metrics.
    metrics_port: int | None = None

    @property
    def port(self) -> int:
        """The broker's port, or else the controller's."""
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
    # Whether the directory has the secrets of `penstock up --secure`.
    secure: bool = False

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
            f"node {node_id} does not exist; the nodes are "
            f"{', '.join(str(node.id) for node in self.nodes)}"
        )


def plan(
    cluster_id: str,
    brokers: int,
    controllers: int | None,
    port: int,
    racks: Sequence[str],
    settings: Mapping[str, str],
    *,
    secure: bool = False,
) -> Layout:
    """Return the layout of a new cluster. Port 0 chooses free ports, which the brokers keep."""
    check_settings(settings)
    if port + brokers > 65_536:
        raise LayoutError(
            f"{brokers} brokers from port {port} on need ports above 65535: use a lower --port"
        )
    broker_ports = list(range(port, port + brokers)) if port else free_ports(brokers, set())
    node_count = brokers + (controllers or 0)
    other_ports = free_ports((controllers or brokers) + node_count, set(broker_ports))
    ports, controller_ports = iter(broker_ports), iter(other_ports[node_count:])
    metrics_ports = iter(
        metrics_ports_from(
            DEFAULT_METRICS_PORT if port == DEFAULT_PORT else 0, other_ports[:node_count]
        )
    )
    if controllers is None:
        roles = ("broker", "controller")
        nodes = [
            NodeLayout(node_id, roles, next(ports), next(controller_ports), next(metrics_ports))
            for node_id in range(1, brokers + 1)
        ]
    else:
        nodes = [
            NodeLayout(node_id, ("broker",), next(ports), None, next(metrics_ports))
            for node_id in range(1, brokers + 1)
        ]
        nodes += [
            NodeLayout(node_id, ("controller",), None, next(controller_ports), next(metrics_ports))
            for node_id in range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        ]
    return Layout(cluster_id, tuple(racks), dict(settings), tuple(nodes), secure)


def with_broker(layout: Layout) -> Layout:
    """Add a broker on the port after the last; the quorum is unchanged."""
    last = max(layout.brokers, key=lambda node: node.id)
    port = max(node.port for node in layout.brokers) + 1
    used = {
        used_port
        for node in layout.nodes
        for used_port in (node.broker_port, node.controller_port, node.metrics_port)
        if used_port
    }
    if port > 65_535 or port in used or not is_free(port):
        (port,) = free_ports(1, used)
    (metrics_port,) = free_ports(1, {*used, port})
    added = NodeLayout(last.id + 1, ("broker",), port, None, metrics_port)
    return replace(layout, nodes=(*layout.nodes, added))


def metrics_ports_from(first: int, others: Sequence[int]) -> list[int]:
    """Return the ports from `first` on that are free, and other free ones in the place of those
    that are not. 0 as the first takes the others."""
    return [
        first + number if first and is_free(first + number) else other
        for number, other in enumerate(others)
    ]


def check_settings(settings: Mapping[str, str]) -> None:
    for name in _PER_NODE:
        if name in settings:
            raise LayoutError(
                f"{name} cannot be given with -c: it differs between nodes, and penstock up sets it"
            )
    if settings.get(METRICS):
        raise LayoutError(
            f"{METRICS} cannot be given with -c: it differs between nodes, and penstock up sets "
            "it. An empty value turns metrics off"
        )
    for name in _DIRECTORIES:
        absolute = [
            path for path in settings.get(name, "").split(",") if path.strip().startswith("/")
        ]
        if absolute:
            raise LayoutError(
                f"{name}={settings[name]} cannot be given with -c: nodes cannot share a directory. "
                "Give a relative path, which is resolved in each node's directory"
            )


def properties_of(
    layout: Layout,
    node: NodeLayout,
    home: Path,
    given: Mapping[str, str] | None = None,
    security: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a node's server.properties; `given` settings override the layout's, and these those of
    `security`."""
    voters = ",".join(
        f"{voter.id}@{HOST}:{voter.controller_port}"
        for voter in layout.nodes
        if voter.controller_port
    )
    ports = {
        SECURE_LISTENER if layout.secure else "PLAINTEXT": node.broker_port,
        "CONTROLLER": node.controller_port,
    }
    values = {
        "process.roles": ",".join(node.roles),
        "node.id": str(node.id),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items() if port),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": "data",
        **_internal_topics(len(layout.brokers)),
        "transaction.two.phase.commit.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        METRICS: metrics_url(node.metrics_port, secure=layout.secure),
        **(security or {}),
        **layout.settings,
        **(given or {}),
    }
    if node.is_broker and layout.racks:
        values["broker.rack"] = layout.racks[(node.id - 1) % len(layout.racks)]
    for name in _DIRECTORIES:
        if name in values:
            values[name] = ",".join(str(home / path.strip()) for path in values[name].split(","))
    return values


def metrics_url(port: int | None, *, secure: bool) -> str:
    return f"http{'s' if secure else ''}://{HOST}:{port}" if port else ""


def _internal_topics(brokers: int) -> dict[str, str]:
    """Return Kafka's replication of internal topics, limited by the number of brokers."""
    factor, min_isr = str(min(brokers, 3)), str(min(brokers, 2))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": min_isr,
    }


def describe_stopped(node: NodeLayout, directory: Path) -> dict[str, Any]:
    """Return a stopped node's entry of `nodes list --json`."""
    home = directory / str(node.id)
    return {
        "id": node.id,
        "pid": None,
        "roles": list(node.roles),
        "port": node.port,
        "dir": str(home),
        "metrics": metrics_address(home / PROPERTIES),
        "state": "stopped",
    }


def metrics_address(file: Path) -> str | None:
    """Return the host and port of a node's metrics, from its server.properties, after https:// if
    they have TLS; None if it has none."""
    value = _last_value(file, METRICS)
    return None if value is None else value.lower().removeprefix("http://").rstrip("/") or None


def metrics_token(file: Path) -> str | None:
    """Return the token that a node's page of metrics asks for; None if it asks for none."""
    return _last_value(file, METRICS_TOKEN) or None


def _last_value(file: Path, setting: str) -> str | None:
    """Return what a properties file says of a setting last."""
    if not file.exists():
        return None
    for line in reversed(file.read_text().splitlines()):
        name, _equals, value = line.partition("=")
        if name.strip() == setting:
            return value.strip()
    return None


def check_properties(file: Path, given: Mapping[str, str]) -> None:
    """Raise LayoutError if a given setting differs from the node's server.properties."""
    lines = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
    properties = {name: value for name, _equals, value in lines}
    for name, value in given.items():
        if properties.get(name) != value:
            raise LayoutError(
                f"{file} has {name}={properties.get(name)}, not {value}: change it there, or use "
                "another --dir"
            )


def check_same(
    existing: Layout,
    directory: Path,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: Sequence[str],
) -> None:
    """Raise LayoutError if a given option differs from the existing cluster's."""
    options = (
        ("--brokers", brokers, len(existing.brokers)),
        ("--controllers", controllers, existing.separate_controllers),
        ("--port", port or None, existing.brokers[0].port),
        ("--racks", ",".join(racks) or None, ",".join(existing.racks)),
    )
    for option, given, current in options:
        if given is not None and given != current:
            raise LayoutError(
                f"{directory} has a cluster with {option} {current or 'not given'}, not {given}: "
                "use another --dir"
            )


def load(directory: Path) -> Layout | None:
    """Return the directory's layout, or None if it has no cluster."""
    file = directory / CLUSTER
    if not file.exists():
        return None
    try:
        data = json.loads(file.read_text())
        nodes = tuple(
            NodeLayout(**{**node, "roles": tuple(node["roles"])}) for node in data["nodes"]
        )
        return Layout(
            str(data["cluster_id"]),
            tuple(data["racks"]),
            dict(data["settings"]),
            nodes,
            bool(data.get("secure", False)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise LayoutError(
            f"{file} is invalid ({error!r}): penstock up writes this file, and it must not be "
            "edited"
        ) from error


def save(directory: Path, layout: Layout) -> None:
    replace_file(directory / CLUSTER, json.dumps(asdict(layout), indent=1) + "\n")


def replace_file(file: Path, text: str, *, is_secret: bool = False) -> None:
    """Write a file atomically. A secret one is readable by its owner only."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    mode = 0o600 if is_secret else 0o666
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as opened:
        opened.write(text)
    temporary.replace(file)


def free_ports(count: int, used: Collection[int]) -> list[int]:
    """Choose random ports that are not in use."""
    candidates = random.sample(_FREE_PORTS, len(_FREE_PORTS))
    free = (port for port in candidates if port not in used and is_free(port))
    ports = list(islice(free, count))
    if len(ports) < count:
        raise LayoutError(f"{HOST} has no {count} free ports")
    return ports


def is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True
