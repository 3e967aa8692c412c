"""`penstock up` of several nodes: makes their directories ready, runs them under the supervisor,
and says when the cluster is ready."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cli import control, layout
from penstock.cli.layout import HOST, PROPERTIES, Layout, NodeLayout
from penstock.cli.serving import announce, serve_at
from penstock.cli.supervisor import Supervisor
from penstock.client.client import Client
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import KafkaError
from penstock.handlers import CONTROLLER_SERVED, SERVED, load
from penstock.ids import uuid_text
from penstock.node.broker.formatting import format_directories
from penstock.world import World
from penstock.world.real import RealDisk, RealRng, run

# How long the nodes of a cluster may take to find each other, once each of them serves.
READY_PATIENCE_S = 60.0
_PROBE_INTERVAL_S = 0.02


def up_cluster(
    directory: Path,
    *,
    brokers: int | None,
    controllers: int | None,
    port: int | None,
    racks: Sequence[str],
    settings: Mapping[str, str],
) -> str | None:
    """Runs until it is told to end. Gives why the cluster did not come up, if so."""
    directory.mkdir(parents=True, exist_ok=True)
    control.lock(directory)
    kept = layout.load(directory)
    if kept is None:
        wanted = layout.DEFAULT_PORT if port is None else port
        kept = layout.plan(
            uuid_text(RealRng().uuid()), brokers or 1, controllers, wanted, racks, settings
        )
        for node in kept.nodes:
            _config_of(kept, node, directory / str(node.id))  # what is refused must not be kept
        layout.save(directory, kept)
    else:
        layout.check_same(kept, directory, brokers, controllers, port, racks)
    for node in kept.nodes:
        _prepare(kept, node, directory, settings)
    for served in (SERVED, CONTROLLER_SERVED):
        for api_key in served:
            load(api_key, served)  # once here, and not in each of the nodes
    gc.freeze()  # so that their collectors do not touch, and thereby copy, what they share

    def grow(old: Layout) -> Layout:
        new = layout.with_broker(old)
        _prepare(new, new.nodes[-1], directory, {})
        return new

    return Supervisor(
        directory,
        kept,
        serve_at,
        probe=lambda: _probe(kept),
        announce=lambda: announce(kept.bootstrap),
        grow=grow,
    ).run()


def _prepare(cluster: Layout, node: NodeLayout, directory: Path, given: Mapping[str, str]) -> None:
    """A node is formatted when it is made, and never again: one that lost its data must not take
    part as if it had not (INVARIANTS 19). Its settings are written last, and show that it was made.
    """
    home = directory / str(node.id)
    file = home / PROPERTIES
    if file.exists():
        properties = layout.properties_of(cluster, node, home, given)
        layout.check_kept(file, {name: properties[name] for name in given})
        return
    home.mkdir(parents=True, exist_ok=True)
    text, config = _config_of(cluster, node, home)
    format_directories(
        RealDisk(),
        RealRng(),
        config,
        cluster.cluster_id,
        ignore_formatted=True,
        say=lambda _line: None,
    )
    layout.write_whole(file, text)


def _config_of(cluster: Layout, node: NodeLayout, home: Path) -> tuple[str, NodeConfig]:
    """As text and as read. ConfigError with all that is wrong with it."""
    text = "".join(
        f"{name}={value}\n" for name, value in layout.properties_of(cluster, node, home).items()
    )
    return text, read_node_config(text.encode(), str(home / PROPERTIES))


def _probe(cluster: Layout) -> int:
    """Until every broker knows of all of them and the controller would place a topic on all of
    them: 0. Otherwise 1, in time."""
    try:
        run(lambda world: wait_ready(world, cluster))
    except (KafkaError, TimeoutError) as error:
        print(
            (
                f"penstock up: the cluster did not become ready within {READY_PATIENCE_S:.0f} s: "
                f"{error}"
            ),
            file=sys.stderr,
        )
        return 1
    return 0


async def wait_ready(world: World, cluster: Layout) -> None:
    """The last reason is raised when the time is over."""
    deadline = world.clock.monotonic() + READY_PATIENCE_S
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
    """Until the broker that is asked knows all of these as live."""
    while ids - {broker.id for broker in (await client.admin.describe_cluster()).brokers}:
        await asyncio.sleep(_PROBE_INTERVAL_S)
