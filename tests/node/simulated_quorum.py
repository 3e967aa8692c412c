"""A simulated quorum whose nodes a test starts, stops and damages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode
from penstock.metadata.image import BROKER
from penstock.node.quorum.initial_voters import InitialVoters
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.raft.voters import Endpoint, Voter, VoterSet
from penstock.sim.quorum.node import Listener, format_quorum_node, quorum_config, quorum_node
from penstock.world.sim import Node, Simulation

RESOURCE = (BROKER, "1")
OBSERVER = 9
# Virtual seconds. A test that waits so long has failed.
LONG_S = 60.0


class SimulatedQuorum:
    """Voters 1, 2 and 3, and the observer 9 if a test starts it. `quorums` has the running nodes,
    `errors` those that have failed."""

    def __init__(self, seed: int, settings: Mapping[str, object] | None = None) -> None:
        self.simulation = Simulation(seed)
        self.quorums: dict[int, Quorum] = {}
        self.errors: dict[int, BaseException] = {}
        self.listeners: dict[int, Listener] = {}
        self._settings = settings or {}
        self._voters = {node_id: f"c{node_id}:9093" for node_id in (1, 2, 3)}

    def node(self, node_id: int) -> Node:
        return self.simulation.node(f"c{node_id}")

    def config(self, node_id: int) -> NodeConfig:
        listener = f"c{node_id}:9092" if node_id == OBSERVER else None
        return quorum_config(node_id, self._voters, "/d", self._settings, listener=listener)

    def format(self, node_id: int) -> None:
        """Empty the directory of a node that does not run, and format it."""
        world = self.node(node_id).world
        if world.disk.exists("/d"):
            world.disk.remove_tree("/d")
        format_quorum_node(world, self.config(node_id))
        world.disk.sync_dir("/")

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            node = self.node(node_id)
            if not node.alive:
                node.restart()
            if not node.world.disk.exists("/d"):
                self.format(node_id)
            node.start(self._live(node_id))

    async def _live(self, node_id: int) -> None:
        listener = self.listeners.get(node_id, Listener())
        world = self.node(node_id).world
        try:
            async with quorum_node(world, self.config(node_id), listener) as quorum:
                self.quorums[node_id] = quorum
                await asyncio.Event().wait()
        except ExceptionGroup as error:
            self.errors[node_id] = error
        finally:
            self.quorums.pop(node_id, None)

    def kill(self, node_id: int) -> None:
        self.node(node_id).crash()
        self.quorums.pop(node_id, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def active(self) -> Quorum:
        await self.until(lambda: any(quorum.is_leader for quorum in self.quorums.values()))
        return next(quorum for quorum in self.quorums.values() if quorum.is_leader)


class DynamicQuorum(SimulatedQuorum):
    """Controllers 1 to 6 with voters in the log (KIP-853). The first ones are 1, 2 and 3; the
    others are formatted to join."""

    def __init__(
        self,
        seed: int,
        settings: Mapping[str, object] | None = None,
        *,
        voters: Collection[int] = (1, 2, 3),
    ) -> None:
        super().__init__(seed, settings)
        self._voters = {node_id: f"c{node_id}:9093" for node_id in range(1, 7)}
        self._first = VoterSet.of(
            Voter(
                voter,
                UUID(int=1000 + voter),
                (Endpoint("CONTROLLER", f"c{voter}", 9093),),
                max_version=1,
            )
            for voter in voters
        )
        # Voters whose first directory is gone, so that they are formatted to join.
        self.wiped: set[int] = set()

    def config(self, node_id: int) -> NodeConfig:
        return quorum_config(node_id, self._voters, "/d", self._settings, knows_voters=False)

    def format(self, node_id: int) -> None:
        world = self.node(node_id).world
        if world.disk.exists("/d"):
            world.disk.remove_tree("/d")
        is_first = node_id in self._first.ids and node_id not in self.wiped
        initial = InitialVoters(voters=self._first if is_first else None)
        format_quorum_node(world, self.config(node_id), initial)
        world.disk.sync_dir("/")

    def replace(self, node_id: int) -> None:
        """Kill a node and start it with an empty directory, formatted to join."""
        self.kill(node_id)
        self.wiped.add(node_id)
        self.node(node_id).restart()
        self.format(node_id)
        self.start(node_id)

    def voter(self, node_id: int) -> Voter:
        return self.quorums[node_id]._raft.local

    async def add(self, node_id: int) -> AddRaftVoterResponse:
        """Ask the leader to add a running controller."""
        voter = self.voter(node_id)
        return await (await self.active()).add_raft_voter(
            AddRaftVoterRequest(
                cluster_id=None,
                voter_id=node_id,
                voter_directory_id=voter.directory_id,
                listeners=tuple(
                    AddRaftVoterRequest.Listener(name=name, host=host, port=port)
                    for name, host, port in voter.endpoints
                ),
            )
        )

    async def add_eventually(self, node_id: int) -> None:
        """Repeat until the controller has caught up."""
        async with asyncio.timeout(LONG_S):
            while (await self.add(node_id)).error_code:
                await asyncio.sleep(0.1)

    async def remove(self, node_id: int, directory_id: UUID | None = None) -> ErrorCode:
        leader = await self.active()
        found = leader.voter_set.directory_id(node_id) if directory_id is None else directory_id
        response = await leader.remove_raft_voter(
            RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=found)
        )
        return ErrorCode(response.error_code)


def setting(name: str, size: int = 30) -> tuple[object, ...]:
    """Return the records that set a setting of broker 1 to a value of this size."""
    return (
        ConfigRecord(
            resource_type=RESOURCE[0], resource_name=RESOURCE[1], name=name, value="v" * size
        ),
    )


def settings_of(quorum: Quorum) -> list[str]:
    return list(quorum.image.configs.get(RESOURCE, {}))
