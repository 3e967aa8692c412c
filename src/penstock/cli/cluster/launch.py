"""Prepare the directories of a cluster's nodes, run them, and announce readiness."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cli.cluster import control, layout
from penstock.cli.cluster.layout import HOST, PROPERTIES, Layout, NodeLayout
from penstock.cli.cluster.securing import (
    announce_with,
    open_secrets,
    secured_settings,
    write_client_files,
)
from penstock.cli.cluster.supervisor import Supervisor
from penstock.cli.cluster.up import serve_node
from penstock.client.client import Client
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.handlers import CONTROLLER_SERVED, SERVED, load
from penstock.ids import uuid_text
from penstock.node.broker.formatting import first_records, format_directories
from penstock.security.setup.cluster import ClusterSecrets
from penstock.security.tls.node import NodeTls
from penstock.start import link_worlds
from penstock.world import World
from penstock.world.real import RealDisk, RealRng, run

# Timeout for the cluster to become ready after each node has started.
READY_TIMEOUT_S = 60.0
_PROBE_INTERVAL_S = 0.02


def run_cluster(
    directory: Path,
    *,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: Sequence[str],
    settings: Mapping[str, str],
    secure: bool = False,
) -> str | None:
    """Run the directory's cluster until SIGTERM or SIGINT; create it at the first start.

    Returns the reason if the cluster did not become ready, else None.
    """
    directory.mkdir(parents=True, exist_ok=True)
    control.lock(directory)
    cluster = layout.load(directory)
    secrets = open_secrets(directory, is_new=cluster is None, wanted=secure)
    if cluster is None:
        first_port = layout.DEFAULT_PORT if port is None else port
        cluster = layout.plan(
            uuid_text(RealRng().uuid()),
            brokers or 1,
            controllers,
            first_port,
            racks,
            settings,
            secure=secure,
        )
        for node in cluster.nodes:
            # Validate before saving, so that invalid settings leave no layout behind.
            home = directory / str(node.id)
            _config_of(cluster, node, home, secured_settings(secrets, home, node.id))
        layout.save(directory, cluster)
    else:
        layout.check_same(cluster, directory, brokers, controllers, port, racks)
    for node in cluster.nodes:
        _prepare(cluster, node, directory, settings, secrets)
    # Load the handlers before forking, so that the nodes share their memory. Freezing keeps the
    # nodes' garbage collectors from touching, and thereby copying, shared pages.
    for served in (SERVED, CONTROLLER_SERVED):
        for api_key in served:
            load(api_key, served)
    gc.freeze()

    def add_broker(old: Layout) -> Layout:
        new = layout.with_broker(old)
        _prepare(new, new.nodes[-1], directory, {}, secrets)
        write_client_files(directory, secrets, new.bootstrap)
        return new

    return Supervisor(
        directory,
        cluster,
        serve_node,
        probe=lambda: _probe(cluster, directory),
        announce=lambda: announce_with(directory, secrets, cluster.bootstrap),
        add_broker=add_broker,
    ).run()


def _prepare(
    cluster: Layout,
    node: NodeLayout,
    directory: Path,
    given: Mapping[str, str],
    secrets: ClusterSecrets | None,
) -> None:
    """Format a new node's directories and write its server.properties.

    A node is formatted once: a node that lost its data must not rejoin as if it had not (rule
    19). server.properties is written last, so its presence means that the node was formatted.
    """
    home = directory / str(node.id)
    file = home / PROPERTIES
    security = secured_settings(secrets, home, node.id)
    if file.exists():
        properties = layout.properties_of(cluster, node, home, given)
        layout.check_properties(file, {name: properties[name] for name in given})
        return
    home.mkdir(parents=True, exist_ok=True)
    text, config = _config_of(cluster, node, home, security)
    format_directories(
        RealDisk(),
        RealRng(),
        config,
        cluster.cluster_id,
        ignore_formatted=True,
        say=lambda _line: None,
        **first_records(secrets, RealRng()),
    )
    layout.replace_file(file, text, is_secret=secrets is not None)


def _config_of(
    cluster: Layout, node: NodeLayout, home: Path, security: Mapping[str, str]
) -> tuple[str, NodeConfig]:
    """Return server.properties as text and parsed. Raises ConfigError with all problems."""
    properties = layout.properties_of(cluster, node, home, security=security)
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return text, read_node_config(text.encode(), str(home / PROPERTIES))


def _probe(cluster: Layout, directory: Path) -> int:
    """Wait until the cluster is ready; return the exit code of the probe process. It connects as
    brokers connect to each other, with their certificate and login."""
    file = directory / str(cluster.brokers[0].id) / PROPERTIES
    config = read_node_config(file.read_bytes(), str(file))

    async def wait(world: World) -> None:
        _controllers, to_brokers = link_worlds(NodeTls(world, config), config)
        await wait_ready(to_brokers, cluster)

    try:
        run(wait)
    except (KafkaError, TimeoutError) as error:
        print(
            f"penstock up: the cluster did not become ready within {READY_TIMEOUT_S:.0f} s: "
            f"{error}",
            file=sys.stderr,
        )
        return 1
    return 0


async def wait_ready(world: World, cluster: Layout) -> None:
    """Wait until every broker sees all brokers unfenced, and the controller can place a topic on
    all of them. Raises the last error after the timeout."""
    deadline = world.clock.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            await _check_ready(world, cluster)
            return
        except KafkaError:
            if world.clock.monotonic() > deadline:
                raise
        await asyncio.sleep(_PROBE_INTERVAL_S)


async def _check_ready(world: World, cluster: Layout) -> None:
    ids = {node.id for node in cluster.brokers}
    for node in cluster.brokers:
        async with Client(
            world, f"{HOST}:{node.port}", client_id="penstock-up", request_timeout_s=5.0
        ) as client:
            await wait_unfenced(client, ids)
    async with Client(
        world, cluster.bootstrap, client_id="penstock-up", request_timeout_s=5.0
    ) as client:
        name = f"penstock-{uuid_text(world.rng.uuid())}"
        await client.admin.create_topic(
            name, partitions=1, replication_factor=len(ids), validate_only=True
        )


async def wait_unfenced(client: Client, ids: set[int]) -> None:
    """Wait until the client's broker sees all of these brokers unfenced."""
    while ids - {broker.id for broker in (await client.admin.describe_cluster()).brokers}:
        await asyncio.sleep(_PROBE_INTERVAL_S)
