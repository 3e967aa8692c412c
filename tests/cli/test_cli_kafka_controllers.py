"""--bootstrap-controller: tools that reach the cluster by the listeners of its controllers
(KIP-919)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import build
from penstock.cli.kafka import configs, features, metadata_quorum, topics
from penstock.cli.kafka.reassign_partitions import command as reassign_partitions
from penstock.client.admin.quorum import QuorumInfo
from penstock.client.client import Client
from penstock.world import World
from penstock.world.real import run
from tests.cli.kafka_tool import Tool
from tests.cli.waiting import eventually


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three nodes, each a broker and a controller: two of the controllers are not active."""
    with penstock.Cluster(brokers=3) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def controllers(bootstrap: str) -> list[str]:
    """The address of each controller."""

    async def main(world: World) -> QuorumInfo:
        async with Client(world, bootstrap) as client:
            return await client.admin.describe_quorum()

    return [voter.endpoints[0].rpartition("/")[2] for voter in run(main).voters]


def test_clients_of_controllers_know_the_controllers(controllers: list[str]) -> None:
    async def main(world: World) -> list[str]:
        async with Client(world, controllers[0], controllers=True) as client:
            cluster = await client.admin.describe_cluster()
            assert cluster.controller_id in (1, 2, 3)
            return [f"{each.host}:{each.port}" for each in cluster.brokers]

    assert sorted(run(main)) == sorted(controllers)


def test_every_controller_describes_the_quorum(
    tool: Tool, bootstrap: str, controllers: list[str]
) -> None:
    def described(option: str, servers: str) -> list[str]:
        words = (option, servers, "describe", "--status")
        code, out, err = tool(metadata_quorum.run, *words)
        assert (code, err) == (0, "")
        moving = ("HighWatermark", "MaxFollowerLag")
        return [line for line in out.splitlines() if not line.startswith(moving)]

    expected = described("--bootstrap-server", bootstrap)
    assert len(controllers) == 3
    for controller in controllers:
        assert described("--bootstrap-controller", controller) == expected


def test_penstock_quorum_asks_controllers(controllers: list[str]) -> None:
    words = ["quorum", "describe", "--json", "--bootstrap-controller", controllers[2]]
    result = CliRunner().invoke(build("quorum"), words)
    assert result.exit_code == 0, result.output
    assert [voter["id"] for voter in json.loads(result.output)["voters"]] == [1, 2, 3]


def test_features(tool: Tool, bootstrap: str, controllers: list[str]) -> None:
    code, by_brokers, _err = tool(features.run, "--bootstrap-server", bootstrap, "describe")
    assert code == 0
    for controller in controllers:
        code, out, err = tool(features.run, "--bootstrap-controller", controller, "describe")
        assert (code, err) == (0, "")
        names = [line.split("\t")[0] for line in out.splitlines()]
        assert names == [line.split("\t")[0] for line in by_brokers.splitlines()]
    change = ("upgrade", "--feature", "metadata.version=30", "--dry-run")
    assert tool(features.run, "--bootstrap-controller", controllers[1], *change) == (
        0,
        "metadata.version can be upgraded to 30.\n",
        "",
    )


def test_configs_of_topics_and_brokers(tool: Tool, bootstrap: str, controllers: list[str]) -> None:
    assert tool(topics.run, "--bootstrap-server", bootstrap, "--create", "--topic", "t")[0] == 0
    for number, controller in enumerate(controllers, 60_000):
        to = ("--bootstrap-controller", controller)
        for entity in (("--topic", "t"), ("--broker-defaults",), ("--broker", "1")):
            name = "retention.ms" if entity[0] == "--topic" else "log.retention.ms"
            change = (*to, "--alter", *entity, "--add-config", f"{name}={number}")
            assert tool(configs.run, *change)[0] == 0

            def is_shown(
                words: tuple[str, ...] = (*to, "--describe", *entity),
                expected: str = f"  {name}={number} sensitive=false",
            ) -> bool:
                code, out, err = tool(configs.run, *words)
                assert (code, err) == (0, "")
                return expected in out

            # The active controller has changed it; this one replays the record a moment later.
            eventually(is_shown)


def test_what_only_brokers_serve_is_refused(tool: Tool, controllers: list[str]) -> None:
    words = ("--bootstrap-controller", controllers[0], "--describe", "--entity-type", "topics")
    code, out, err = tool(configs.run, *words)
    assert (code, out) == (1, "")
    assert "UnsupportedEndpointTypeException: This Admin API is not yet supported when" in err
    assert "Give brokers instead of controllers as bootstrap servers" in err


def test_reassignments_are_listed_and_cancelled(
    tool: Tool, controllers: list[str], tmp_path: Path
) -> None:
    to = ("--bootstrap-controller", controllers[1])
    assert tool(reassign_partitions.run, *to, "--list") == (
        0,
        "No partition reassignments found.\n",
        "",
    )
    file = tmp_path / "moves.json"
    partition = {"topic": "t", "partition": 0, "replicas": [1]}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    words = ("--cancel", "--reassignment-json-file", str(file))
    code, out, _err = tool(reassign_partitions.run, *to, *words)
    assert (code, out.splitlines()[0]) == (
        0,
        "None of the specified partition reassignments are active.",
    )
    assert "Clearing broker-level throttles on broker 1" in out


def test_listener_of_the_other_kind_is_refused(
    tool: Tool, bootstrap: str, controllers: list[str]
) -> None:
    words = ("--bootstrap-controller", bootstrap, "describe", "--status")
    code, _out, err = tool(metadata_quorum.run, *words)
    assert code == 1
    assert "MismatchedEndpointTypeException: this is the listener of a broker" in err
    words = ("--bootstrap-server", controllers[0], "describe", "--status")
    code, _out, err = tool(metadata_quorum.run, *words)
    assert code == 1
    assert "does not support Metadata" in err


@pytest.mark.parametrize(
    ("tool_run", "words", "reason"),
    [
        (
            configs.run,
            ("--describe", "--entity-type", "topics"),
            "Only one of --bootstrap-server or --bootstrap-controller can be specified",
        ),
        (metadata_quorum.run, ("describe", "--status"), "not allowed with argument"),
        (features.run, ("describe",), "not allowed with argument"),
    ],
)
def test_both_options_are_refused(
    tool: Tool, tool_run: Callable[[Sequence[str]], int], words: tuple[str, ...], reason: str
) -> None:
    both = ("--bootstrap-server", "x:1", "--bootstrap-controller", "x:2")
    code, out, err = tool(tool_run, *both, *words)
    assert (code, out) == (1, "")
    assert reason in err
