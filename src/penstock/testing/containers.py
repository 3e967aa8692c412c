"""A stand-in for KafkaContainer of testcontainers: the same names, without Docker.

    from penstock.testing.containers import KafkaContainer  # was: from testcontainers.kafka import

    with KafkaContainer() as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.get_bootstrap_server())

Settings that reach a Kafka container as environment variables reach Penstock too: with_env(
"KAFKA_NUM_PARTITIONS", "3") sets num.partitions. Those of the image itself (listeners, ids, roles)
are the cluster's own, and are ignored. What only a container has is refused, with the reason:
commands in it, its files, its volumes and networks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from penstock.testing.cluster import ProcessCluster
from penstock.testing.host_process import ClusterError

_HOST = "127.0.0.1"
# Variables that describe the container. The cluster chooses its own listeners, ids and directories.
_IGNORED = (
    "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_BROKER_ID",
    "KAFKA_CONTROLLER_LISTENER_NAMES",
    "KAFKA_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_INTER_BROKER_LISTENER_NAME",
    "KAFKA_LISTENERS",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG_DIR",
    "KAFKA_LOG_DIRS",
    "KAFKA_METADATA_LOG_DIR",
    "KAFKA_NODE_ID",
    "KAFKA_PROCESS_ROLES",
    "KAFKA_ZOOKEEPER_CONNECT",
    # Java's, not Kafka's.
    "KAFKA_HEAP_OPTS",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_PORT",
    "KAFKA_OPTS",
)


class KafkaContainer:
    """`image` is accepted and has no effect. `port` is the port in the container: clients get the
    bootstrap server, whose port is a free one unless `with_bind_ports` names it."""

    MIN_KRAFT_TAG = "7.0.0"

    def __init__(
        self,
        image: str = "confluentinc/cp-kafka:7.6.0",
        port: int = 9093,
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.image = image
        self.port = port
        self.kraft_enabled = False
        self.cluster_id: str | None = None
        self.env: dict[str, str] = dict(env or {})
        self.ports: dict[str | int, str | int | None] = {port: None}
        self._name = name
        self._kwargs = kwargs
        self._cluster: ProcessCluster | None = None

    # Configuration

    def with_kraft(self) -> KafkaContainer:
        """Penstock has no other mode."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> KafkaContainer:
        self.cluster_id = cluster_id
        return self

    def with_env(self, key: str, value: object) -> KafkaContainer:
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> KafkaContainer:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_env_file(self, env_file: str | os.PathLike[str]) -> KafkaContainer:
        """Read lines KEY=VALUE. Empty lines and comments are skipped."""
        for line in Path(env_file).read_text().splitlines():
            key, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not key.startswith("#"):
                self.with_env(key.strip(), value.strip().strip("'\""))
        return self

    def with_exposed_ports(self, *ports: str | int) -> KafkaContainer:
        for port in ports:
            self.ports.setdefault(port, None)
        return self

    def with_bind_ports(
        self, container: str | int, host: str | int | None = None
    ) -> KafkaContainer:
        """Let clients reach a port of the container at a port of this machine."""
        self.ports[_number(container)] = host
        return self

    def with_name(self, name: str) -> KafkaContainer:
        self._name = name
        return self

    def with_kwargs(self, **kwargs: Any) -> KafkaContainer:
        """Arguments of Docker have no effect."""
        self._kwargs = kwargs
        return self

    def maybe_emulate_amd64(self) -> KafkaContainer:
        """Nothing is emulated."""
        return self

    def waiting_for(self, _strategy: object) -> KafkaContainer:
        """`start` returns when clients can connect, so there is nothing to wait for."""
        return self

    def configure(self) -> None:
        """Called by `start` of testcontainers' class; there is nothing left to do."""

    # Running

    def start(self, timeout: float = 30) -> KafkaContainer:
        bound = self.ports.get(self.port)
        self._cluster = ProcessCluster(
            self._settings(),
            ports=[] if bound is None else [_number(bound)],
            cluster_id=self.cluster_id,
        )
        try:
            self._cluster.start(timeout)
        except BaseException:
            self._cluster = None
            raise
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:  # noqa: ARG002
        """Kill the cluster and delete its data. No effect if it does not run."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.stop()

    def get_bootstrap_server(self) -> str:
        return self.get_cluster().bootstrap_servers

    def get_container_host_ip(self) -> str:
        return _HOST

    def get_exposed_port(self, port: str | int) -> int:
        if _number(port) != self.port:
            raise ValueError(f"only port {self.port} is mapped, not {port}")
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the broker's log, and nothing as its errors."""
        return self.get_cluster().log(1).encode(), b""

    @property
    def status(self) -> str:
        return "not_started" if self._cluster is None else "running"

    def reload(self) -> None:
        """The status is always up to date."""

    def get_cluster(self) -> ProcessCluster:
        """Return the cluster, with the faults that a container does not have."""
        if self._cluster is None:
            raise ClusterError("the container does not run: call start(), or use it in a with")
        return self._cluster

    def _settings(self) -> dict[str, str]:
        """Return the settings in KAFKA_ variables: an underscore is a dot, as in the images; two
        are a dash and three an underscore."""
        settings = {}
        for key, value in self.env.items():
            if key.startswith("KAFKA_") and key not in _IGNORED:
                name = key.removeprefix("KAFKA_").lower()
                name = name.replace("___", "\0").replace("__", "-").replace("_", ".")
                settings[name.replace("\0", "_")] = value
        return settings

    # What only a container has

    def exec(self, command: str | list[str]) -> NoReturn:
        raise NotImplementedError(
            f"there is no container to run {command!r} in: call the commands of penstock, or "
            "Kafka's own, with the bootstrap server of get_bootstrap_server()"
        )

    def create_file(self, content: bytes, path: str) -> NoReturn:
        raise NotImplementedError(f"there is no container to write {path} to")

    def with_command(self, command: str | list[str]) -> NoReturn:
        raise NotImplementedError(f"there is no container that could run {command!r}")

    def with_network(self, network: object) -> NoReturn:
        raise NotImplementedError(
            f"{network!r}: containers in a Docker network cannot reach a process on this machine"
        )

    def with_network_aliases(self, *aliases: str) -> NoReturn:
        raise NotImplementedError(f"{aliases}: there is no Docker network")

    def with_volume_mapping(
        self,
        host: str | os.PathLike[str],
        container: str,
        mode: str = "ro",
    ) -> NoReturn:
        raise NotImplementedError(f"there is no container to mount {host} at {container} in")

    def get_wrapped_container(self) -> NoReturn:
        raise NotImplementedError("there is no container of Docker: use get_cluster()")

    def get_docker_client(self) -> NoReturn:
        raise NotImplementedError("there is no Docker: use get_cluster()")


def _number(port: str | int) -> int:
    return int(str(port).partition("/")[0])
