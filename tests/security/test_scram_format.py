"""A cluster begins with the users of `penstock format --add-scram` and kafka-storage.sh."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.format import format_command
from penstock.cli.kafka import storage
from penstock.config.node import read_node_config
from penstock.metadata.image import MetadataImage
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_credential import ScramCredential, ScramMechanism
from penstock.start import serving
from penstock.world import World
from penstock.world.real import run

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
ADD = "SCRAM-SHA-256=[name=alice,password=alice-secret]"


def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"log.dirs={tmp_path}/data\n"
    )
    return path


def format_with_penstock(path: Path, *scram: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(format_command)
    options = [word for text in scram for word in ("--add-scram", text)]
    result = CliRunner().invoke(app, ["-t", CLUSTER, "-c", str(path), "-s", *options])
    return result.exit_code, result.output + result.stderr


def credentials_of(path: Path) -> MetadataImage:
    """Start the node twice, and return its metadata after the second start."""
    config = read_node_config(path.read_bytes(), str(path))

    async def scenario(world: World) -> MetadataImage:
        async with asyncio.timeout(60):
            async with serving(world, config):
                pass
            async with serving(world, config) as (node, _servers):
                return node.metadata.image

    return run(scenario)


def lets_in(credential: ScramCredential | None, password: str) -> bool:
    mechanism = ScramMechanism.SHA_256
    server = ScramServer(mechanism, lambda _name: credential, "s", b"secret")
    client = ScramClient(mechanism, "alice", password, "c")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None
    client.evaluate(server.evaluate(final))
    return client.is_complete


@pytest.mark.parametrize("tool", ["penstock", "kafka-storage.sh"])
def test_the_first_controller_writes_the_credentials_once(tmp_path: Path, tool: str) -> None:
    path = properties(tmp_path)
    if tool == "penstock":
        code, output = format_with_penstock(path, ADD)
    else:
        words = ["format", "-t", CLUSTER, "-c", str(path), "--standalone", "--add-scram", ADD]
        code, output = storage.run(words), ""
    assert code == 0, output
    assert "secret" not in output
    image = credentials_of(path)
    assert list(image.scram_credentials) == [(ScramMechanism.SHA_256, "alice")]
    assert lets_in(image.scram_credentials[1, "alice"], "alice-secret")


def test_no_file_has_the_password(tmp_path: Path) -> None:
    code, _output = format_with_penstock(properties(tmp_path), ADD)
    assert code == 0
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            assert b"alice-secret" not in file.read_bytes()


def test_a_bad_argument_formats_nothing_and_is_not_repeated(tmp_path: Path) -> None:
    code, output = format_with_penstock(
        properties(tmp_path), "SCRAM-SHA-256=[name=alice,password=secret,iterations=1]"
    )
    assert code == 1
    assert "'iterations' value must be >= 4096" in output
    assert "secret" not in output
    assert not (tmp_path / "data").exists()
