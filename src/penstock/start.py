"""The one place that builds a node's objects and hands them to each other; and `penstock.Cluster`, a broker in the caller's own process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

from penstock.config.meta_properties import META_PROPERTIES, decode_meta_properties
from penstock.config.node import NodeConfig, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import SERVED, load
from penstock.log.directory import LogDirectory, formatted_directory
from penstock.node.formatting import format_directories
from penstock.node.node import Node
from penstock.server.dispatch import Dispatch
from penstock.server.server import Server
from penstock.world import Disk, World
from penstock.world.real import RealChance, RealDisk, run


@contextlib.asynccontextmanager
async def serving(world: World, config: NodeConfig) -> AsyncIterator[tuple[Node, str]]:
    """A node that serves, and its bootstrap.servers. Stopped cleanly at the end."""
    directories = [formatted_directory(world.disk, path, config.node_id) for path in config.directories]
    node = Node(world, config, _cluster_id(world.disk, directories), directories)
    await node.start()
    server = Server(world, config, Dispatch(node, SERVED, load))
    try:
        await server.start()
        await node.register(server.ports)
        node.spawn(server.wait_failed())
        yield node, ",".join(f"{broker.host}:{broker.port}" for broker in node.advertised(*_first_listener(config)))
    finally:
        await server.stop()
        await node.stop()


def _first_listener(config: NodeConfig) -> tuple[str, str]:
    listener = config.advertised_broker_listeners[0]
    return listener.name, listener.host or "localhost"


def _cluster_id(disk: Disk, directories: list[LogDirectory]) -> str:
    files = [f"{directory.path}/{META_PROPERTIES}" for directory in directories]
    ids = {decode_meta_properties(disk.read(file), file).cluster_id for file in files}
    if len(ids) > 1:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"the log directories belong to different clusters: {', '.join(sorted(ids))}")
    return ids.pop()


async def serve_until_signal(world: World, config: NodeConfig, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C, or until the node cannot go on."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with serving(world, config) as (node, bootstrap_servers):
        ready(bootstrap_servers)
        await _first(stopped.wait(), node.wait_failed())


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    for task in done:
        task.result()


_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
log.dirs={directory}
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


class Cluster:
    """`with penstock.Cluster() as cluster: cluster.bootstrap_servers`: a real broker on a free port, in a thread of this process, with a
    directory that goes with it."""

    bootstrap_servers: str

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._started = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Cluster:
        self._directory = tempfile.mkdtemp(prefix="penstock-")
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            shutil.rmtree(self._directory)
            raise self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        shutil.rmtree(self._directory)
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            run(self._serve)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the cluster is used
            self._error = error
        finally:
            self._started.set()

    async def _serve(self, world: World) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        config = read_node_config(_PROPERTIES.format(directory=self._directory).encode(), "penstock.Cluster", self._settings)
        format_directories(RealDisk(), RealChance(), config, None, ignore_formatted=False, say=lambda _line: None)
        async with serving(world, config) as (node, self.bootstrap_servers):
            self._started.set()
            await _first(self._stop.wait(), node.wait_failed())
