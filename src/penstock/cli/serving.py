"""A node that serves in this process until it is told to stop: where its log goes, and what is said
when it is ready or cannot be."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.cli.layout import LOG, PROPERTIES
from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.start import serve_until_signal
from penstock.world.real import run

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Why a node cannot begin: said in a line, without a traceback.
CANNOT_START = (ConfigError, KafkaError, OSError, ValueError)


def serve(config: NodeConfig, ready: Callable[[str], None]) -> None:
    run(lambda world: serve_until_signal(world, config, ready))


def serve_at(home: Path, ready: Callable[[], None]) -> int:
    """One node of several, in a process of its own whose output goes to its log."""
    file = home / PROPERTIES
    try:
        config = read_node_config(file.read_bytes(), str(file))
        log_to(home / LOG, config.warnings)
        serve(config, lambda _bootstrap_servers: ready())
    except CANNOT_START as error:
        print(reason(error), file=sys.stderr)
        return 1
    return 0


def announce(bootstrap_servers: str) -> None:
    print(f"ready bootstrap.servers={bootstrap_servers}", flush=True)


def log_to(file: Path | None, warnings: tuple[str, ...]) -> None:
    """Without a file, to stderr."""
    logging.basicConfig(level=logging.INFO, format=_FORMAT, filename=file)
    for warning in warnings:
        logging.getLogger("penstock").warning(warning)


def reason(error: Exception) -> str:
    text = error.message if isinstance(error, KafkaError) else str(error)
    return "; ".join(text.splitlines())
