"""A node that stops before it has joined the cluster leaves its log directories unchanged."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from penstock.client.connection import API_VERSIONS_REQUEST, open_connection
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.log import names
from penstock.node.broker.formatting import format_directories
from penstock.node.quorum.initial_voters import InitialVoters
from penstock.node.quorum.quorum_state_store import is_own_quorum
from penstock.protocol.internal.quorum_state import QuorumStateData, encode_quorum_state
from penstock.protocol.messages.api_versions import ApiVersionsResponse
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
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


def format_for(world: World, settings: NodeConfig, quorum: InitialVoters | None = None) -> None:
    format_directories(
        world.disk,
        world.rng,
        settings,
        None,
        ignore_formatted=False,
        say=lambda _line: None,
        quorum=quorum,
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


def test_standalone_controller_has_dynamic_voters_also_after_a_restart(tmp_path: Path) -> None:
    """KIP-853: its endpoint, which the port 0 leaves open, is that of each start."""

    async def main(world: World) -> None:
        settings = config(tmp_path)
        format_for(world, settings, InitialVoters(standalone=True))
        for _start in range(2):
            async with serving(world, settings) as (node, _servers):
                quorum = node.quorum
                assert quorum.is_leader
                assert quorum.kraft_version == 1
                (voter,) = quorum.voter_set.voters
                assert voter.key == (1, node.metadata_directory.id)
                (endpoint,) = voter.endpoints
                assert endpoint == ("CONTROLLER", "127.0.0.1", quorum.ports["CONTROLLER"])
                while 1 not in quorum.image.controllers:
                    await quorum.wait_applied(quorum.image.offset + 1)
        assert not is_own_quorum(
            world.disk, f"{tmp_path}/metadata/__cluster_metadata-0", node_id=1
        ), "without its log it does not start another quorum"

    run(main)


def test_update_features_upgrades_a_static_controller_to_dynamic_voters(tmp_path: Path) -> None:
    """KIP-853: kafka-features.sh upgrade --feature kraft.version=1."""

    def updated(level: int, kind: int = 1) -> UpdateFeaturesRequest:
        update = UpdateFeaturesRequest.FeatureUpdate(
            feature="kraft.version", max_version_level=level, upgrade_type=kind
        )
        return UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=(update,))

    async def main(world: World) -> None:
        settings = config(tmp_path)
        format_for(world, settings)
        async with serving(world, settings) as (node, servers):
            assert node.quorum.kraft_version == 0
            host, _colon, port = servers.rpartition(":")
            connection = await open_connection(
                world,
                host,
                int(port),
                client_id="test",
                connect_timeout_s=10.0,
                request_timeout_s=10.0,
            )
            for request, error in (
                (updated(2), ErrorCode.INVALID_UPDATE_VERSION),
                (updated(0, kind=2), ErrorCode.INVALID_UPDATE_VERSION),
                (updated(1), ErrorCode.NONE),
                (updated(1), ErrorCode.NONE),
            ):
                response = await connection.call(request, UpdateFeaturesResponse)
                assert response.error_code == error, response.error_message
            versions = await connection.call(API_VERSIONS_REQUEST, ApiVersionsResponse)
            finalized = {
                feature.name: feature.max_version_level for feature in versions.finalized_features
            }
            assert finalized["kraft.version"] == 1
            connection.close()
        async with serving(world, settings) as (node, _servers):
            assert node.quorum.is_leader
            assert node.quorum.kraft_version == 1
            assert node.quorum.voter_set.keys == ((1, node.metadata_directory.id),)

    run(main)


@pytest.mark.parametrize(
    ("content", "is_own"),
    [
        (None, True),
        (((1,), 0), True),
        (((), 0), False),
        (((1, 2), 0), False),
        (((), 1), False),
        (b"{", False),
    ],
)
def test_controller_without_voters_is_its_own_quorum_if_it_always_was(
    tmp_path: Path, content: tuple[tuple[int, ...], int] | bytes | None, is_own: bool
) -> None:
    """Directories that were formatted before KIP-853 have no voters, and a quorum-state of data
    version 0."""

    async def main(world: World) -> None:
        if isinstance(content, bytes):
            (tmp_path / "quorum-state").write_bytes(content)
        elif content is not None:
            voters = tuple(QuorumStateData.CurrentVoter(voter_id=each) for each in content[0])
            state = QuorumStateData(leader_epoch=1, current_voters=voters)
            (tmp_path / "quorum-state").write_bytes(encode_quorum_state(state, content[1]))
        assert is_own_quorum(world.disk, str(tmp_path), 1) is is_own

    run(main)
