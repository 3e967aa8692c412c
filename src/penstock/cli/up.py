"""penstock up: a node, or a cluster, in one word. penstock start: a node from its
server.properties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

from penstock.cli.layout import (
    CLUSTER,
    DEFAULT_PORT,
    HOST,
    LOG,
    PROPERTIES,
    check_kept,
    write_whole,
)
from penstock.cli.options import Argument, Option
from penstock.cli.serving import CANNOT_START, announce, log_to, reason, serve
from penstock.config.node import NodeConfig, read_node_config
from penstock.node.broker.formatting import format_directories
from penstock.world.real import RealDisk, RealRng

NODE_ID = 1
# One broker: what is kept in several copies elsewhere is kept in one here, and nobody waits for
# others to join a group.
_ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def up_command(
    port: Annotated[
        int | None,
        Option(
            "--port",
            int,
            "The port for clients, of the first broker; 0 takes a free one. 9092 by default.",
            min=0,
            max=65535,
        ),
    ] = None,
    directory: Annotated[Path, Option("--dir", Path, "Where data and settings are kept.")] = Path(
        "penstock-data"
    ),
    settings: Annotated[
        list[str] | None,
        Option(
            "-c",
            str,
            "A setting of server.properties, for every node: key=value.",
            many=True,
            metavar="KEY=VALUE",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        Option("--brokers", int, "How many brokers, each a process; 1 by default.", min=1, max=100),
    ] = None,
    controllers: Annotated[
        int | None,
        Option(
            "--controllers",
            int,
            "How many controllers of their own; without it, the brokers are the controllers too.",
            min=1,
            max=9,
        ),
    ] = None,
    racks: Annotated[
        str | None,
        Option("--racks", str, "Racks that the brokers take turns in: a,b,c.", metavar="NAMES"),
    ] = None,
) -> None:
    """Starts a broker, or a cluster of several processes, in the foreground, with sensible settings
    and a directory of its own."""
    where = directory.absolute()
    try:
        given = pairs(settings or [])
        names = _names(racks)
        if (where / CLUSTER).exists() or (brokers or 1) > 1 or controllers is not None:
            _up_cluster(where, brokers, controllers, port, names, given)
        else:
            _up_alone(
                where / str(NODE_ID),
                port,
                {**given, **({"broker.rack": names[0]} if names else {})},
            )
    except CANNOT_START as error:
        _fail("up", error)


def start_command(
    properties: Annotated[Path, Argument(Path, "The node's server.properties.")],
    override: Annotated[
        list[str] | None,
        Option("--override", str, "A setting in place of the file's: key=value.", many=True),
    ] = None,
) -> None:
    """Starts a node from its server.properties, in the foreground. Its directories must have been
    formatted."""
    try:
        config = read_node_config(properties.read_bytes(), str(properties), pairs(override or []))
        log_to(None, config.warnings)
        serve(config, announce)
    except CANNOT_START as error:
        _fail("start", error)


def _up_alone(home: Path, port: int | None, given: dict[str, str]) -> None:
    """One node, in this very process: the quickest start there is."""
    properties = _settle(
        home, {**given, **({} if port is None else {"listeners": _listeners(port)})}
    )
    config = read_node_config(properties.read_bytes(), str(properties))
    _format_if_new(config)
    log_to(home / LOG, config.warnings)
    serve(config, announce)


def _up_cluster(
    directory: Path,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: list[str],
    given: dict[str, str],
) -> None:
    from penstock.cli.cluster_up import up_cluster

    if not (directory / CLUSTER).exists() and (directory / str(NODE_ID) / PROPERTIES).exists():
        raise ValueError(
            f"{directory} has a node of its own, which cannot become one of several: use another "
            "--dir"
        )
    problem = up_cluster(
        directory, brokers=brokers, controllers=controllers, port=port, racks=racks, settings=given
    )
    if problem is not None:
        raise ValueError(problem)


def pairs(settings: list[str]) -> dict[str, str]:
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{setting!r} is not of the form key=value")
        found[name.strip()] = value.strip()
    return found


def _names(racks: str | None) -> list[str]:
    names = [] if racks is None else [name.strip() for name in racks.split(",")]
    if not all(names):
        raise ValueError(f"--racks {racks} has a rack without a name")
    return names


def _listeners(port: int) -> str:
    return f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0"


def _settle(home: Path, wanted: dict[str, str]) -> Path:
    """The node's settings: written at the first start, and from then on those of the file. What
    contradicts them is refused."""
    file = home / PROPERTIES
    if file.exists():
        check_kept(file, wanted)
        return file
    home.mkdir(parents=True, exist_ok=True)
    values = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": _listeners(DEFAULT_PORT),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        **_ALONE,
        **wanted,
    }
    write_whole(file, "".join(f"{name}={value}\n" for name, value in values.items()))
    return file


def _format_if_new(config: NodeConfig) -> None:
    disk = RealDisk()
    if not any(disk.exists(f"{path}/meta.properties") for path in config.directories):
        format_directories(
            disk, RealRng(), config, None, ignore_formatted=False, say=lambda _line: None
        )


def _fail(command: str, error: Exception) -> NoReturn:
    print(f"penstock {command}: {reason(error)}", file=sys.stderr)
    sys.exit(1)
