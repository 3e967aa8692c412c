"""What a workload of a cluster run is, and what it gets. Each seed draws some of the workloads."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.sim.cluster.events import Event
from penstock.sim.cluster.history import History
from penstock.sim.cluster.spec import ClusterSpec
from penstock.world.sim import Node as Machine

RETRY_S = 0.2

Connected = Callable[[Machine], AbstractAsyncContextManager[Client]]
Clients = list[tuple[Machine, Coroutine[Any, Any, None]]]


@dataclass(frozen=True, slots=True)
class WorkloadEnv:
    """`connected` connects a client. `max_high_watermark` gives the highest high watermark that any
    leader of a partition has had. Clients work until `over` is set, which is some time after
    `faults_over`."""

    spec: ClusterSpec
    history: History
    rng: random.Random
    connected: Connected
    max_high_watermark: Callable[[TopicPartition], int]
    faults_over: asyncio.Event
    over: asyncio.Event


class Workload:
    """The methods are called in the order in which they are written here.

    A workload that `is_disruptive` keeps other clients from working. It ends with the faults.
    """

    is_disruptive = False

    def __init__(self, env: WorkloadEnv) -> None:
        self.env = env
        self.spec = env.spec
        self.history = env.history
        self.rng = env.rng
        self.over = env.faults_over if self.is_disruptive else env.over

    async def prepare(self, _machine: Machine) -> None:
        """Create what the clients need, before the faults begin."""

    def clients(self, _first: Machine, _second: Machine) -> Clients:
        """Return the clients and the machines that they run on."""
        return []

    async def settle(self, _machine: Machine) -> None:
        """After the faults, wait until the cluster serves the clients as it should."""

    async def read_back(self, _machine: Machine) -> None:
        """Read what the clients wrote, after all clients ended."""

    def __str__(self) -> str:
        return type(self).__name__

    def note(self, event: Event) -> None:
        self.history.events.append(event)


async def until_done(
    operation: Callable[[], Awaitable[object]], *done_codes: ErrorCode, tries: int | None = None
) -> bool:
    """Repeat an operation that may have happened although it failed, until it succeeds or fails
    with one of these codes. Return False if it did not within so many tries."""
    count = 0
    while tries is None or count < tries:
        count += 1
        try:
            await operation()
            return True
        except KafkaError as error:
            if error.code in done_codes:
                return True
            await asyncio.sleep(RETRY_S)
    return False


async def create_topic(
    client: Client, name: str, partitions: int, factor: int, configs: Mapping[str, str]
) -> None:
    """Create a topic. A creation that timed out may have happened, so retry until the topic
    exists."""
    await until_done(
        lambda: client.admin.create_topic(
            name, partitions=partitions, replication_factor=factor, configs=configs
        ),
        ErrorCode.TOPIC_ALREADY_EXISTS,
    )


async def sleep_until(event: asyncio.Event, seconds: float) -> None:
    """Sleep, but not longer than until an event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
