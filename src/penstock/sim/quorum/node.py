"""A node that consists of its `Quorum` and a listener for the quorum's APIs, for simulation and
tests."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, ParamSpec, TypeVar

from penstock.config.node import NodeConfig, read_node_config
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.handlers import (
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch_snapshot,
    quorum_fetch,
    update_raft_voter,
    vote,
)
from penstock.log.directory import formatted_directory
from penstock.node.broker.formatting import format_directories
from penstock.node.quorum.initial_voters import InitialVoters
from penstock.node.quorum.metadata_loader import Publisher
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from penstock.server.dispatch import Dispatch, Handler
from penstock.server.server import Server
from penstock.world import Offload, World

P = ParamSpec("P")
T = TypeVar("T")

CLUSTER_ID = "a-cluster"


class Served(NamedTuple):
    first: int
    last: int
    handler: Handler

    @property
    def advertised_first(self) -> int:
        return self.first


def _api_versions(
    _node: object, _request: ApiVersionsRequest, _context: object
) -> ApiVersionsResponse:
    keys = tuple(
        ApiVersionsResponse.ApiKey(api_key=key, min_version=api.first, max_version=api.last)
        for key, api in SERVED.items()
    )
    features = tuple(
        ApiVersionsResponse.SupportedFeature(
            name=feature.name, min_version=feature.first, max_version=feature.last
        )
        for feature in SUPPORTED_FEATURES
    )
    return ApiVersionsResponse(api_keys=keys, supported_features=features)


def _add_raft_voter(
    node: _Node, request: AddRaftVoterRequest, _context: object
) -> Awaitable[AddRaftVoterResponse]:
    return node.quorum.add_raft_voter(request)


def _remove_raft_voter(
    node: _Node, request: RemoveRaftVoterRequest, _context: object
) -> Awaitable[RemoveRaftVoterResponse]:
    return node.quorum.remove_raft_voter(request)


SERVED: Mapping[int, Served] = {
    1: Served(4, 18, quorum_fetch.handle),
    18: Served(0, 4, _api_versions),
    52: Served(0, 2, vote.handle),
    53: Served(0, 1, begin_quorum_epoch.handle),
    54: Served(0, 1, end_quorum_epoch.handle),
    55: Served(0, 2, describe_quorum.handle),
    59: Served(0, 1, fetch_snapshot.handle),
    80: Served(0, 1, _add_raft_voter),
    81: Served(0, 0, _remove_raft_voter),
    82: Served(0, 0, update_raft_voter.handle),
}


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks for committed images and for changes of leadership."""

    applied: Publisher = lambda _image, _delta: ()
    leadership: Callable[[int | None], None] = lambda _epoch: None


@dataclass(slots=True)
class _Node:
    quorum: Quorum


def quorum_config(
    node_id: int,
    voters: Mapping[int, str],
    directory: str,
    settings: Mapping[str, object],
    *,
    listener: str | None = None,
    knows_voters: bool = True,
) -> NodeConfig:
    """Return the config of a controller at its address among the voters ("host:port"), or of a
    broker at `listener`. It has controller.quorum.voters, or without `knows_voters`
    controller.quorum.bootstrap.servers. `settings` are not validated: tests use values below the
    minimum."""
    voter_list = ",".join(f"{voter}@{address}" for voter, address in voters.items())
    quorum = (
        f"voters={voter_list}" if knows_voters else f"bootstrap.servers={','.join(voters.values())}"
    )
    role, listeners = (
        ("broker", f"PLAINTEXT://{listener}")
        if listener
        else ("controller", f"CONTROLLER://{voters[node_id]}")
    )
    lines = [
        f"process.roles={role}",
        f"node.id={node_id}",
        f"listeners={listeners}",
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.{quorum}",
        f"log.dirs={directory}",
    ]
    config = read_node_config("\n".join(lines).encode(), "quorum")
    return replace(config, values={**config.values, **settings})


def format_quorum_node(
    world: World, config: NodeConfig, quorum: InitialVoters | None = None
) -> None:
    format_directories(
        world.disk,
        world.rng,
        config,
        CLUSTER_ID,
        ignore_formatted=True,
        say=lambda _line: None,
        quorum=quorum,
    )


@contextlib.asynccontextmanager
async def quorum_node(
    world: World, config: NodeConfig, listener: Listener, kind: type[Quorum] = Quorum
) -> AsyncIterator[Quorum]:
    """Run a node until the end of the block, and stop it cleanly. If the block raises, the node is
    killed. A failure of the node's tasks is raised here."""
    directory = formatted_directory(world.disk, config.metadata_log_dir, config.node_id)
    async with asyncio.TaskGroup() as tasks:
        running: list[asyncio.Task[None]] = []
        quorum = kind(
            world,
            config,
            CLUSTER_ID,
            directory,
            on_applied=listener.applied,
            on_leadership=listener.leadership,
            spawn=lambda work: running.append(tasks.create_task(work)),
        )
        await quorum.open()
        server = Server(
            world, config, Dispatch(_Node(quorum), SERVED, lambda key: SERVED[key].handler)
        )
        await server.start()
        # Its timers would be a sixth of all events, and measure virtual time.
        server.loop_delay.stop()
        quorum.ports = server.ports
        await quorum.start()
        try:
            yield quorum
            await quorum.stop()
        finally:
            quorum.abandon()
            await server.stop(within_s=0)
            for task in running:
                task.cancel()


class SlowDisk:
    """An Offload that delays every call by up to `max_delay_s()`. Most calls sync files."""

    def __init__(
        self, offload: Offload, rng: random.Random, max_delay_s: Callable[[], float]
    ) -> None:
        self._offload = offload
        self._rng = rng
        self._max_delay_s = max_delay_s
        self.process = offload.process
        self.background = offload.background

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        delay_s = self._max_delay_s()
        if delay_s:
            await asyncio.sleep(self._rng.random() * delay_s)
        return await self._offload.thread(call, *args, **kwargs)

    async def read(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.thread(call, *args, **kwargs)
