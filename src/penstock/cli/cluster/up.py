"""Run a node or a cluster (penstock up, penstock start).

A single node runs in this process. Several nodes run in processes of their own (`launch`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from penstock.cli.cluster.layout import (
    CLUSTER,
    DEFAULT_METRICS_PORT,
    DEFAULT_PORT,
    HOST,
    LOG,
    METRICS,
    PROPERTIES,
    SECRETS_FILE,
    SECURE_LISTENER,
    check_properties,
    free_ports,
    metrics_ports_from,
    metrics_url,
    replace_file,
)
from penstock.cli.log_output import log_to
from penstock.cli.options import Argument, Option
from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.node.broker.formatting import first_records, format_directories
from penstock.start import serve_until_signal
from penstock.world.real import RealDisk, RealRng, run

if TYPE_CHECKING:
    from penstock.security.setup.cluster import ClusterSecrets

NODE_ID = 1
# With one broker, internal topics have one replica, and groups do not wait for more members.
_SINGLE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}

# Errors of a node's start that are reported in one line, without a traceback.
START_ERRORS = (ConfigError, KafkaError, OSError, ValueError)


def up_command(
    port: Annotated[
        int | None,
        Option(
            "--port",
            int,
            "The first broker's port for clients; 0 chooses a free port. Default: 9092.",
            min=0,
            max=65535,
        ),
    ] = None,
    directory: Annotated[Path, Option("--dir", Path, "The directory of data and settings.")] = Path(
        "penstock-data"
    ),
    settings: Annotated[
        list[str] | None,
        Option(
            "-c",
            str,
            "A server.properties setting for every node: key=value. May be repeated.",
            many=True,
            metavar="KEY=VALUE",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        Option(
            "--brokers", int, "Number of brokers, one process each. Default: 1.", min=1, max=100
        ),
    ] = None,
    controllers: Annotated[
        int | None,
        Option(
            "--controllers",
            int,
            "Number of dedicated controllers. Default: the brokers are the controllers.",
            min=1,
            max=9,
        ),
    ] = None,
    secure: Annotated[
        bool,
        Option(
            "--secure",
            bool,
            "Encrypt and authenticate every connection: create certificates, a user and access "
            "control entries, and write client.properties and librdkafka.properties into --dir.",
            is_flag=True,
        ),
    ] = False,
    racks: Annotated[
        str | None,
        Option("--racks", str, "Racks to assign to the brokers in turn: a,b,c.", metavar="NAMES"),
    ] = None,
) -> None:
    """Start a broker, or a cluster of several processes, in the foreground.

    The first start creates the directory; later starts continue with its data and settings.
    """
    directory = directory.absolute()
    try:
        given = parse_settings(settings or [])
        rack_names = _parse_racks(racks)
        if (directory / CLUSTER).exists() or (brokers or 1) > 1 or controllers is not None:
            _up_cluster(directory, brokers, controllers, port, rack_names, given, secure=secure)
        else:
            _up_single(
                directory,
                port,
                {**given, **({"broker.rack": rack_names[0]} if rack_names else {})},
                secure=secure,
            )
    except START_ERRORS as error:
        _exit_with("up", error)


def start_command(
    properties: Annotated[Path, Argument(Path, "The node's server.properties.")],
    override: Annotated[
        list[str] | None,
        Option("--override", str, "A setting that replaces the file's: key=value.", many=True),
    ] = None,
) -> None:
    """Start a node from its server.properties in the foreground.

    Format its log directories first, with penstock format.
    """
    try:
        config = read_node_config(
            properties.read_bytes(), str(properties), parse_settings(override or [])
        )
        log_to(config, None)
        serve(config, announce)
    except START_ERRORS as error:
        _exit_with("start", error)


def _up_single(directory: Path, port: int | None, given: dict[str, str], *, secure: bool) -> None:
    """Run one node in this process."""
    home = directory / str(NODE_ID)
    secrets = _secrets_of(directory, secure=secure)
    listeners = {} if port is None else {"listeners": _listeners(port, secure=bool(secrets))}
    properties = _write_properties(
        home,
        {**given, **listeners},
        first_metrics_port=DEFAULT_METRICS_PORT if port in (None, DEFAULT_PORT) else 0,
        secrets=secrets,
    )
    config = read_node_config(properties.read_bytes(), str(properties))
    _format_if_new(config, secrets)
    log_to(config, home / LOG)
    if secrets is None:
        serve(config, announce)
        return
    from penstock.cli.cluster.securing import announce_with

    serve(config, partial(announce_with, directory, secrets))


def _secrets_of(directory: Path, *, secure: bool) -> ClusterSecrets | None:
    """Return the secrets of a secure cluster's directory, which are made at its first start."""
    if not secure and not (directory / SECRETS_FILE).exists():
        return None
    # Imported on first use, so that a node without security starts quickly.
    from penstock.cli.cluster.securing import open_secrets

    directory.mkdir(parents=True, exist_ok=True)
    is_new = not (directory / str(NODE_ID) / PROPERTIES).exists()
    return open_secrets(directory, is_new=is_new, wanted=secure)


def _up_cluster(
    directory: Path,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: list[str],
    given: dict[str, str],
    *,
    secure: bool,
) -> None:
    from penstock.cli.cluster.launch import run_cluster

    if not (directory / CLUSTER).exists() and (directory / str(NODE_ID) / PROPERTIES).exists():
        raise ValueError(
            f"{directory} has a single node, which cannot become part of a cluster: use another "
            "--dir"
        )
    problem = run_cluster(
        directory,
        brokers=brokers,
        controllers=controllers,
        port=port,
        racks=racks,
        settings=given,
        secure=secure,
    )
    if problem is not None:
        raise ValueError(problem)


def parse_settings(texts: list[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{text!r} is not a setting: give key=value")
        settings[name.strip()] = value.strip()
    return settings


def _parse_racks(racks: str | None) -> list[str]:
    names = [] if racks is None else [name.strip() for name in racks.split(",")]
    if not all(names):
        raise ValueError(f"--racks {racks} contains an empty name")
    return names


def _listeners(port: int, *, secure: bool) -> str:
    name = SECURE_LISTENER if secure else "PLAINTEXT"
    return f"{name}://{HOST}:{port},CONTROLLER://{HOST}:0"


def _write_properties(
    home: Path,
    given: dict[str, str],
    *,
    first_metrics_port: int,
    secrets: ClusterSecrets | None,
) -> Path:
    """Write the node's server.properties at its first start, and return the file.

    Later starts use the file as it is; settings that differ from it are refused.
    """
    file = home / PROPERTIES
    security: dict[str, str] = {}
    if secrets is not None:
        from penstock.cli.cluster.securing import secured_settings

        security = secured_settings(secrets, home, NODE_ID)
    if file.exists():
        check_properties(file, given)
        return file
    home.mkdir(parents=True, exist_ok=True)
    (metrics_port,) = metrics_ports_from(first_metrics_port, free_ports(1, set()))
    values = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": _listeners(DEFAULT_PORT, secure=secrets is not None),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        **_SINGLE_BROKER,
        METRICS: metrics_url(metrics_port, secure=secrets is not None),
        **security,
        **given,
    }
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    replace_file(file, text, is_secret=secrets is not None)
    return file


def _format_if_new(config: NodeConfig, secrets: ClusterSecrets | None) -> None:
    disk = RealDisk()
    if any(disk.exists(f"{path}/meta.properties") for path in config.directories):
        return
    format_directories(
        disk,
        RealRng(),
        config,
        None,
        ignore_formatted=False,
        say=lambda _line: None,
        **first_records(secrets, RealRng()),
    )


def _exit_with(command: str, error: Exception) -> NoReturn:
    print(f"penstock {command}: {reason_of(error)}", file=sys.stderr)
    sys.exit(1)


def serve(config: NodeConfig, ready: Callable[[str], None]) -> None:
    run(lambda world: serve_until_signal(world, config, ready))


def serve_node(home: Path, ready: Callable[[], None]) -> int:
    """Run one node of a cluster in its own process; return the exit code."""
    file = home / PROPERTIES
    try:
        config = read_node_config(file.read_bytes(), str(file))
        log_to(config, home / LOG)
        serve(config, lambda _bootstrap_servers: ready())
    except START_ERRORS as error:
        print(reason_of(error), file=sys.stderr)
        return 1
    return 0


def announce(bootstrap_servers: str) -> None:
    print(f"ready bootstrap.servers={bootstrap_servers}", flush=True)


def reason_of(error: Exception) -> str:
    """Return the error's message in one line."""
    text = error.message if isinstance(error, KafkaError) else str(error)
    return "; ".join(text.splitlines())
