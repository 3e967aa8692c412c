"""penstock up: a node in one word. penstock start: a node from its server.properties."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.errors import KafkaError

NODE_ID = 1
PROPERTIES = "server.properties"
# One broker: what is kept in several copies elsewhere is kept in one here, and nobody waits for others to join a group.
_ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def up_command(
    port: Annotated[int | None, typer.Option(help="The port for clients; 0 takes a free one. 9092 by default.")] = None,
    directory: Annotated[Path, typer.Option("--dir", help="Where its data and settings are kept.")] = Path("penstock-data"),
    settings: Annotated[
        list[str] | None, typer.Option("-c", help="A setting of server.properties: key=value.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Starts a broker in the foreground, with sensible settings and a directory of its own."""
    home = directory.absolute() / str(NODE_ID)
    try:
        wanted = {**_pairs(settings or []), **({} if port is None else {"listeners": _listeners(port)})}
        properties = _settle(home, wanted)
        config = read_node_config(properties.read_bytes(), str(properties))
        _format_if_new(config)
        _log_to(home / "penstock.log", config.warnings)
        _serve(config, announce=True)
    except (ConfigError, KafkaError, OSError, ValueError) as error:
        _fail("up", error)


def start_command(
    properties: Annotated[Path, typer.Argument(help="The node's server.properties.")],
    override: Annotated[list[str] | None, typer.Option("--override", help="A setting in place of the file's: key=value.")] = None,
) -> None:
    """Starts a node from its server.properties, in the foreground. Its directories must have been formatted."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        config = read_node_config(properties.read_bytes(), str(properties), _pairs(override or []))
        for warning in config.warnings:
            logging.getLogger("penstock").warning(warning)
        _serve(config, announce=True)
    except (ConfigError, KafkaError, OSError, ValueError) as error:
        _fail("start", error)


def _serve(config: NodeConfig, *, announce: bool) -> None:
    from penstock.start import serve_until_signal
    from penstock.world.real import run

    def ready(bootstrap_servers: str) -> None:
        if announce:
            print(f"ready bootstrap.servers={bootstrap_servers}", flush=True)

    run(lambda world: serve_until_signal(world, config, ready))


def _pairs(settings: list[str]) -> dict[str, str]:
    pairs = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{setting!r} is not of the form key=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _listeners(port: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"


def _settle(home: Path, wanted: dict[str, str]) -> Path:
    """The node's settings: written at the first start, and from then on those of the file. What contradicts them is refused."""
    file = home / PROPERTIES
    if file.exists():
        lines = (line.partition("=") for line in file.read_text().splitlines() if "=" in line)
        kept = {name: value for name, _equals, value in lines}
        for name, value in wanted.items():
            if kept.get(name) != value:
                raise ValueError(f"{file} has {name}={kept.get(name)}, not {value}: change it there, or use another --dir")
        return file
    home.mkdir(parents=True, exist_ok=True)
    values = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "listeners": _listeners(9092),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        **_ALONE,
        **wanted,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return file


def _format_if_new(config: NodeConfig) -> None:
    from penstock.node.formatting import format_directories
    from penstock.world.real import RealChance, RealDisk

    disk = RealDisk()
    if not any(disk.exists(f"{path}/meta.properties") for path in config.directories):
        format_directories(disk, RealChance(), config, None, ignore_formatted=False, say=lambda _line: None)


def _log_to(file: Path, warnings: tuple[str, ...]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", filename=file)
    for warning in warnings:
        logging.getLogger("penstock").warning(warning)


def _fail(command: str, error: Exception) -> NoReturn:
    text = error.message if isinstance(error, KafkaError) else str(error)
    print(f"penstock {command}: {'; '.join(text.splitlines())}", file=sys.stderr)
    raise typer.Exit(1)
