"""Builds the page of a node's metrics from the parts of the node."""

from __future__ import annotations

from penstock.config.node import NodeConfig
from penstock.handlers.parts import BrokerParts, ControllerParts
from penstock.metrics.catalogue import server as names
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples, Source
from penstock.metrics.turn import Turn
from penstock.node.metrics.cluster import ControllerSource, QuorumSource
from penstock.node.metrics.coordinators import GroupSource, TransactionSource
from penstock.node.metrics.lag import LagSource
from penstock.node.metrics.memory import RoomBytes
from penstock.node.metrics.partitions import PartitionSource
from penstock.node.metrics.remote_offsets import RemoteOffsets
from penstock.security.tls.reload import ReloadedContext
from penstock.server.metrics.listener import MetricsListener
from penstock.server.metrics.sources import ProcessSource, ServerSource
from penstock.server.metrics.tls import TlsSource
from penstock.server.server import Server
from penstock.world import World

_PRODUCE, _FETCH = 0, 1
_UNKNOWN = "unknown"


def metrics_listener(
    world: World,
    config: NodeConfig,
    server: Server,
    broker: BrokerParts,
    controller: ControllerParts | None,
    tls: ReloadedContext | None = None,
) -> MetricsListener | None:
    """Return the listener of penstock.metrics.listener, not started; None if it is not set."""
    address = config.metrics_listener
    if address is None:
        return None
    remote = RemoteOffsets(world, config.node_id, broker.metadata)
    reads = Reads(world)

    def close() -> None:
        remote.close()
        reads.close()

    sources = _sources(world, config, server, broker, controller, remote, reads)
    context = None if tls is None else tls.context
    return MetricsListener(world, config, address, sources, on_stop=close, tls=context)


def _sources(
    world: World,
    config: NodeConfig,
    server: Server,
    broker: BrokerParts,
    controller: ControllerParts | None,
    remote: RemoteOffsets,
    reads: Reads,
) -> list[Source]:
    rooms = RoomBytes(
        broker.replicas, broker.fetches, broker.quorum, broker.groups, broker.transactions
    )
    counts = broker.replicas.counts
    sources: list[Source] = [
        _InfoSource(reads, config, broker),
        ServerSource(
            [listener.name for listener in config.listeners],
            server.state,
            server.loop_delay,
            rooms,
            {_PRODUCE: counts.produce_errors, _FETCH: counts.fetch_errors},
        ),
        QuorumSource(world.clock, broker.quorum),
    ]
    if server.tls:
        sources.append(TlsSource(server.tls, server.handshakes, server.reserved_handshakes))
    if controller is not None:
        sources.append(ControllerSource(controller.quorum, controller.controller))
    if config.is_broker:
        sources += [
            PartitionSource(world, broker.metadata, broker.replicas, broker.fetches, reads),
            GroupSource(broker.groups),
            TransactionSource(world.clock, broker.transactions),
            LagSource(world, config.node_id, broker.groups, broker.replicas, remote, reads),
        ]
    sources.append(ProcessSource(reads))
    return sources


class _InfoSource:
    """The identity of the node, its clock, its open log files, and its authorizer."""

    def __init__(self, reads: Reads, config: NodeConfig, broker: BrokerParts) -> None:
        roles = [
            name
            for name, has_role in (
                ("broker", config.is_broker),
                ("controller", config.is_controller),
            )
            if has_role
        ]
        self._reads = reads
        self._labels = (broker.cluster_id, str(config.node_id), ",".join(roles))
        self._version = _UNKNOWN
        self._replicas = broker.replicas
        self._clock = broker.clock
        self._authorizer = broker.authorizer

    async def __call__(self, samples: Samples, _turn: Turn) -> None:
        samples.add(names.CLOCK, self._clock.now_ms() / 1000)
        if self._version == _UNKNOWN:
            name = "the installed package"
            found = await self._reads.results({name: _version})
            self._version = found.get(name, _UNKNOWN)
        samples.add(names.NODE_INFO, 1, *self._labels, self._version)
        samples.add(names.OPEN_LOG_FILES, len(self._replicas.store.open_files))
        if self._authorizer is not None:
            samples.add(names.AUTHORIZATIONS_DENIED, self._authorizer.denied)
            samples.add(names.ACLS, self._authorizer.acl_count)


def _version() -> str:
    """Return the version of the installed package; reads its files."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:
        return _UNKNOWN
