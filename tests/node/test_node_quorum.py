"""The quorum with real files, sockets on localhost and the wall clock."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.metadata.image import BROKER
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.quorum_state import decode_quorum_state
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.sim.quorum.node import (
    CLUSTER_ID,
    Listener,
    format_quorum_node,
    quorum_config,
    quorum_node,
)
from penstock.world import World
from penstock.world.real import run

RESOURCE = (BROKER, "1")
LONG_S = 30.0
# An observer with controller.quorum.bootstrap.servers instead of controller.quorum.voters.
BOOTSTRAPPED = 8


class Killed(Exception):
    """Ends a node without a clean shutdown."""


class Members:
    """Nodes of one quorum in this process."""

    def __init__(
        self,
        world: World,
        directory: Path,
        voters: int,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.quorums: dict[int, Quorum] = {}
        self._world = world
        self._directory = directory
        self._settings = settings or {}
        self._voters = {node_id: f"127.0.0.1:{free_port()}" for node_id in range(1, voters + 1)}
        self._ends: dict[int, asyncio.Future[None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._ends[node_id] = asyncio.get_running_loop().create_future()
            self._tasks[node_id] = asyncio.create_task(self._live(node_id))
        await until(lambda: all(node_id in self.quorums for node_id in node_ids))

    async def _live(self, node_id: int) -> None:
        path = str(self._directory / str(node_id))
        listener = None if node_id in self._voters else "127.0.0.1:0"
        knows_voters = node_id != BOOTSTRAPPED
        config = quorum_config(
            node_id,
            self._voters,
            path,
            self._settings,
            listener=listener,
            knows_voters=knows_voters,
        )
        format_quorum_node(self._world, config)
        try:
            async with quorum_node(self._world, config, Listener()) as quorum:
                self.quorums[node_id] = quorum
                await self._ends[node_id]
        except* Killed:
            pass

    async def stop(self, node_id: int) -> None:
        self._ends[node_id].set_result(None)
        await self._gone(node_id)

    async def kill(self, node_id: int) -> None:
        self._ends[node_id].set_exception(Killed())
        await self._gone(node_id)

    async def _gone(self, node_id: int) -> None:
        del self.quorums[node_id]
        await self._tasks.pop(node_id)

    async def stop_all(self) -> None:
        for node_id in list(self.quorums):
            await self.stop(node_id)

    async def active(self) -> Quorum:
        await until(lambda: any(quorum.is_leader for quorum in self.quorums.values()))
        return next(quorum for quorum in self.quorums.values() if quorum.is_leader)

    async def all_have(self, name: str) -> None:
        await until(lambda: all(name in settings_of(quorum) for quorum in self.quorums.values()))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.002)


def settings_of(quorum: Quorum) -> list[str]:
    return list(quorum.image.configs.get(RESOURCE, {}))


def write(quorum: Quorum, name: str) -> Awaitable[int]:
    return quorum.append(
        (
            ConfigRecord(
                resource_type=RESOURCE[0], resource_name=RESOURCE[1], name=name, value="x" * 100
            ),
        )
    )


def in_real_world(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    run(main)


def test_three_voters_elect_a_leader_and_replicate_to_an_observer(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3, 9)
        leader = await members.active()
        await write(leader, "a")
        await members.all_have("a")
        assert {quorum.leader_id for quorum in members.quorums.values()} == {leader.node_id}
        follower = next(quorum for quorum in members.quorums.values() if not quorum.is_leader)
        with pytest.raises(KafkaError) as refused:
            await write(follower, "b")
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await members.stop_all()

    in_real_world(main)


def test_killed_leader_is_replaced_quickly_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3)
        for round_ in range(3):
            leader = await members.active()
            await write(leader, f"before.{round_}")
            await members.all_have(f"before.{round_}")
            began = world.clock.monotonic()
            await members.kill(leader.node_id)
            successor = await members.active()
            await write(successor, f"after.{round_}")
            # Voters start the election 50 to 150 ms after the disconnect, not after the fetch
            # timeout of 2 s.
            assert world.clock.monotonic() - began < 1.5
            assert successor.lost_nodes.keys() == {leader.node_id}
            await members.start(leader.node_id)
            await members.all_have(f"after.{round_}")
        await members.stop_all()

    in_real_world(main)


def test_leader_that_stops_hands_over(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3)
        leader = await members.active()
        await write(leader, "a")
        began = world.clock.monotonic()
        await members.stop(leader.node_id)
        await members.active()
        assert world.clock.monotonic() - began < 1.5
        await members.all_have("a")
        await members.stop_all()

    in_real_world(main)


def test_observer_finds_the_leader_by_bootstrap_servers(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3, BOOTSTRAPPED)
        leader = await members.active()
        await write(leader, "a")
        await members.all_have("a")
        await members.kill(leader.node_id)
        await write(await members.active(), "b")
        await members.all_have("b")
        await members.stop_all()

    in_real_world(main)


def test_metadata_survives_a_restart_of_all_voters(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3)
        leader = await members.active()
        await asyncio.gather(*(write(leader, f"n.{number}") for number in range(50)))
        epoch = leader.epoch
        await members.stop_all()
        await members.start(1, 2, 3)
        await members.all_have("n.49")
        assert (await members.active()).epoch > epoch
        await members.stop_all()
        state, version = decode_quorum_state(
            (tmp_path / "1" / f"{METADATA_TOPIC}-0" / "quorum-state").read_bytes()
        )
        assert version == 0
        assert state.cluster_id == CLUSTER_ID
        assert state.current_voters is not None
        assert [voter.voter_id for voter in state.current_voters] == [1, 2, 3]

    in_real_world(main)


def test_single_voter_leads_once_started(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=1)
        for epoch in (1, 2):
            await members.start(1)
            quorum = members.quorums[1]
            assert quorum.is_leader
            assert quorum.epoch == epoch
            assert len(settings_of(quorum)) == epoch - 1
            appending = asyncio.ensure_future(write(quorum, f"in.{epoch}"))
            await asyncio.sleep(0)
            assert f"in.{epoch}" in quorum.pending.configs[RESOURCE]
            assert f"in.{epoch}" not in quorum.image.configs.get(RESOURCE, {})
            assert await appending == quorum.image.offset == quorum.high_watermark - 1
            await members.stop(1)

    in_real_world(main)


def test_voter_behind_the_log_start_loads_a_snapshot(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        settings = {
            "metadata.log.max.record.bytes.between.snapshots": 5_000,
            "metadata.log.segment.bytes": 4_000,
            "metadata.max.retention.bytes": 0,
        }
        members = Members(world, tmp_path, voters=3, settings=settings)
        await members.start(1, 2)
        leader = await members.active()
        for number in range(3):
            await asyncio.gather(*(write(leader, f"n.{number}.{each}") for each in range(50)))
            await until(lambda: leader._log.bytes_since_snapshot < 5_000)
        await until(lambda: leader._log.start_offset > 0)
        await members.start(3, 9)
        await members.all_have("n.2.49")
        for node_id in (3, 9):
            names = [
                path.name for path in (tmp_path / str(node_id) / f"{METADATA_TOPIC}-0").iterdir()
            ]
            assert any(name.endswith(".checkpoint") for name in names), names
            assert settings_of(members.quorums[node_id]) == settings_of(leader)
        await members.stop_all()
        await members.start(1, 2, 3, 9)
        await members.all_have("n.2.49")
        await members.stop_all()

    in_real_world(main)


def test_leader_describes_the_quorum(tmp_path: Path) -> None:
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    request = DescribeQuorumRequest(
        topics=(DescribeQuorumRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )

    def described(quorum: Quorum) -> DescribeQuorumResponse.Topic.Partition:
        return quorum.describe_quorum(request).topics[0].partitions[0]

    async def main(world: World) -> None:
        members = Members(world, tmp_path, voters=3)
        await members.start(1, 2, 3, 9)
        leader = await members.active()
        end = await write(leader, "a") + 1
        await until(
            lambda: (
                [
                    replica.log_end_offset
                    for replica in (*described(leader).current_voters, *described(leader).observers)
                ]
                == [end] * 4
            )
        )
        partition_data = described(leader)
        assert (
            partition_data.leader_id,
            partition_data.leader_epoch,
            partition_data.high_watermark,
        ) == (
            leader.node_id,
            leader.epoch,
            end,
        )
        assert [replica.replica_id for replica in partition_data.current_voters] == [1, 2, 3]
        assert [replica.replica_id for replica in partition_data.observers] == [9]
        assert all(
            abs(replica.last_fetch_timestamp - world.clock.now_ms()) < 10_000
            for replica in partition_data.current_voters
        )
        assert [node.node_id for node in leader.describe_quorum(request).nodes] == [1, 2, 3]
        follower = next(quorum for quorum in members.quorums.values() if not quorum.is_leader)
        assert described(follower).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await members.stop_all()

    in_real_world(main)
