"""A node that stops before it has joined the cluster leaves its log directories unchanged."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.log import names
from penstock.node.broker.formatting import format_directories
from penstock.start import serving
from penstock.world import World
from penstock.world.real import run


def config(path: Path, port: int = 0) -> NodeConfig:
    text = f"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
metadata.log.dir={path}/metadata
log.dirs={path}/logs
controlled.shutdown.enable=false
"""
    return read_node_config(text.encode(), "server.properties")


def format_for(world: World, settings: NodeConfig) -> None:
    format_directories(
        world.disk, world.rng, settings, None, ignore_formatted=False, say=lambda _line: None
    )


def test_a_failed_start_keeps_the_clean_shutdown_mark(tmp_path: Path) -> None:
    """Otherwise the next start recovers all logs as after a crash."""

    async def main(world: World) -> None:
        settings = config(tmp_path)
        format_for(world, settings)
        async with serving(world, settings):
            pass
        mark = tmp_path / "logs" / names.CLEAN_SHUTDOWN
        assert mark.exists()
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            with contextlib.suppress(OSError):
                async with serving(world, config(tmp_path, other.getsockname()[1])):
                    raise AssertionError("the port is in use")
        assert mark.exists()

    run(main)


def test_stop_marks_the_shutdown_as_clean_although_the_quorum_fails_to_stop(
    tmp_path: Path,
) -> None:
    """The disk of the metadata log has failed; the directory of the logs is online."""

    async def main(world: World) -> None:
        settings = config(tmp_path)
        format_for(world, settings)
        with pytest.raises(KafkaError, match="metadata is offline"):
            async with serving(world, settings) as (node, _servers):
                node.metadata_directory.fail("a test", OSError("broken"))
                node.quorum._log._log.flushing.recovery_point = 0
        assert (tmp_path / "logs" / names.CLEAN_SHUTDOWN).exists()

    run(main)


@pytest.mark.parametrize(
    ("server", "is_refused"),
    [("localhost", False), ("127.0.0.1", False), ("192.0.2.1", True), ("no.such.invalid", False)],
)
def test_controller_whose_bootstrap_server_is_another_machine_is_refused(
    tmp_path: Path, server: str, is_refused: bool
) -> None:
    """It has no voters, and would start a second quorum instead of joining that one."""

    async def main(world: World) -> None:
        settings = read_node_config(
            b"process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://:0\n"
            b"controller.listener.names=CONTROLLER\n"
            + f"controller.quorum.bootstrap.servers={server}:9093\n".encode()
            + f"log.dirs={tmp_path}/logs\n".encode(),
            "server.properties",
        )
        format_for(world, settings)
        if is_refused:
            with pytest.raises(KafkaError, match="is another machine"):
                async with serving(world, settings):
                    raise AssertionError("a second quorum has started")
        else:
            async with serving(world, settings) as (node, _servers):
                assert node.quorum.is_leader

    run(main)
