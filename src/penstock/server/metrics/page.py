"""Builds the page of a node's metrics from the parts of the node."""

from __future__ import annotations

from penstock.config.node import NodeConfig
from penstock.handlers.parts import BrokerParts, ControllerParts
from penstock.metrics.catalogue import server as names
from penstock.metrics.samples import Samples, Source
from penstock.metrics.turn import Turn
from penstock.node.metrics.cluster import ControllerSource, QuorumSource
from penstock.node.metrics.coordinators import GroupSource, TransactionSource
from penstock.node.metrics.lag import LagSource
from penstock.node.metrics.memory import RoomBytes
from penstock.node.metrics.partitions import PartitionSource
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.server.metrics.listener import MetricsListener
from penstock.server.metrics.sources import ProcessSource, ServerSource
from penstock.server.server import Server
from penstock.world import World

_PRODUCE, _FETCH = 0, 1


def metrics_listener(
    world: World,
    config: NodeConfig,
    server: Server,
    broker: BrokerParts,
    controller: ControllerParts | None,
) -> MetricsListener | None:
    """Return the listener of penstock.metrics.listener, not started; None if it is not set."""
    address = config.metrics_listener
    if address is None:
        return None
    remote = RemoteOffsets(world, config.node_id, broker.metadata)
    sources = _sources(world, config, server, broker, controller, remote)
    return MetricsListener(world, config, address, sources, on_stop=remote.close)


def _sources(
    world: World,
    config: NodeConfig,
    server: Server,
    broker: BrokerParts,
    controller: ControllerParts | None,
    remote: RemoteOffsets,
) -> list[Source]:
    rooms = RoomBytes(
        broker.replicas, broker.fetches, broker.quorum, broker.groups, broker.transactions
    )
    counts = broker.replicas.counts
    sources: list[Source] = [
        _InfoSource(world, config, broker),
        ServerSource(
            [listener.name for listener in config.listeners],
            server.state,
            server.loop_delay,
            rooms,
            {_PRODUCE: counts.produce_errors, _FETCH: counts.fetch_errors},
        ),
        QuorumSource(world.clock, broker.quorum),
    ]
    if controller is not None:
        sources.append(ControllerSource(controller.quorum, controller.controller))
    if config.is_broker:
        sources += [
            PartitionSource(world, broker.replicas, broker.fetches),
            GroupSource(broker.groups),
            TransactionSource(world.clock, broker.transactions),
            LagSource(world, config.node_id, broker.groups, broker.replicas, remote),
        ]
    sources.append(ProcessSource(world))
    return sources


class _InfoSource:
    """The identity of the node, and its open log files."""

    def __init__(self, world: World, config: NodeConfig, broker: BrokerParts) -> None:
        roles = [
            name
            for name, has_role in (
                ("broker", config.is_broker),
                ("controller", config.is_controller),
            )
            if has_role
        ]
        self._world = world
        self._labels = (broker.cluster_id, str(config.node_id), ",".join(roles))
        self._version: str | None = None
        self._replicas = broker.replicas

    async def __call__(self, samples: Samples, _turn: Turn) -> None:
        if self._version is None:
            self._version = await self._world.offload.thread(_version)
        samples.add(names.NODE_INFO, 1, *self._labels, self._version)
        samples.add(names.OPEN_LOG_FILES, len(self._replicas.store.open_files))


def _version() -> str:
    """Return the version of the installed package; reads its files."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
