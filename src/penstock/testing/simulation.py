"""Other people's asyncio code and a cluster in one simulated world: `simulate`.

    async def test(world: World, cluster: SimulatedCluster) -> None:
        await cluster.create_topic("orders")
        service = OrderService(cluster.bootstrap_servers)     # uses aiokafka
        task = asyncio.create_task(service.run())
        ...
        await cluster.calm()                                  # no faults from here on
        assert await invoices(cluster.bootstrap_servers) == expected

    simulate(test, seed=7, brokers=3, faults=("kill", "pause", "reset"))

Brokers, network, disks and time are simulated, and everything follows from the seed. A minute of
waiting takes no time. A library runs in it if it gets its connections from the event loop's
`create_connection` and has no threads: aiokafka does. `cluster.client()` is Penstock's own client.

While a run lasts, `time`, `random` and `os.urandom` follow the simulation for code that runs in its
event loop. Sets of futures and tasks have the same order in every run. The order of other sets does
not follow from the seed: that of strings depends on PYTHONHASHSEED, which must be the same for two
processes to run a seed in the same way, and that of objects without a hash of their own on their
addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from penstock.client.client import Client
from penstock.client.errors import ConnectionFailed
from penstock.config.node import read_node_config
from penstock.errors import KafkaError
from penstock.sim.cluster.nodes import ClusterNode, build_nodes
from penstock.sim.harness import quiet
from penstock.testing import sim_aiokafka
from penstock.testing.sim_faults import FAULTS, FaultSchedule
from penstock.world import ProtocolFactory, World
from penstock.world.sim import Node, Simulation, SimulationStuck
from penstock.world.sim.process import current_process

T = TypeVar("T")

# The machine on which the test runs.
TEST_MACHINE = "test"
_READY_WITHIN_S = 60.0
_POLL_S = 0.05
_PORT = 9092
# How long a callback takes on a machine that is no broker. A program that waits until a moment has
# passed (`while monotonic() <= deadline`, as in aiokafka's commits) would do so forever if time
# stood still while it computes.
_CALLBACK_S = 0.000_02
# Timeouts in about Kafka's proportions, shorter, so that a run of some seconds has many events.
# Compiled code may read the real clock for the timestamps of records, which is later.
_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://broker{node_id}:9092,CONTROLLER://broker{node_id}:9093
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs=/data
default.replication.factor={factor}
offsets.topic.replication.factor={factor}
offsets.topic.num.partitions=2
transaction.state.log.replication.factor={factor}
transaction.state.log.min.isr={min_isr}
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor={factor}
share.coordinator.state.topic.min.isr={min_isr}
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=1000
controller.quorum.election.backoff.max.ms=200
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
replica.lag.time.max.ms=1000
replica.fetch.wait.max.ms=200
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
log.message.timestamp.after.max.ms=9223372036854775807
"""


class SimulationError(AssertionError):
    """A simulated test has failed. The text has the seed and the faults before the failure."""

    def __init__(self, seed: int, problem: str, events: Sequence[str]) -> None:
        lines = [f"seed {seed}: {problem}", "what happened before:", *(f"  {e}" for e in events)]
        if os.environ.get("PYTHONHASHSEED", "random") == "random":
            lines.append(
                "The order of sets of strings differs in each process: set PYTHONHASHSEED=0 to run "
                "a seed in the same way in all of them."
            )
        super().__init__("\n".join(lines))
        self.seed = seed
        self.events = tuple(events)


def simulate(
    test: Callable[[World, SimulatedCluster], Coroutine[Any, Any, T]],
    seed: int,
    *,
    brokers: int = 1,
    faults: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    within_s: float = 600.0,
) -> T:
    """Run `test` beside a cluster from a seed, and return its result. `faults` are some of those in
    `sim_faults`, which happen at random moments until `cluster.calm()`. Raise SimulationError if
    the test fails, or takes more than `within_s` of virtual time."""
    unknown = set(faults) - set(FAULTS)
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}; known are {', '.join(FAULTS)}")
    simulation = Simulation(seed)
    cluster = SimulatedCluster(simulation, brokers, settings or {})

    async def main() -> T:
        machine = cluster.machine(TEST_MACHINE)
        for node in cluster.nodes:
            node.start()
        await machine.run(cluster.wait_ready())
        schedule = FaultSchedule(simulation, cluster.nodes, faults, cluster.note)
        cluster.schedule = schedule
        injecting = asyncio.create_task(schedule.run())
        try:
            async with asyncio.timeout(within_s):
                return await machine.run(test(machine.world, cluster))
        finally:
            injecting.cancel()

    with quiet(), _simulated_modules(simulation):
        try:
            return simulation.run(main())
        except (Exception, SimulationStuck) as error:
            problem = f"{type(error).__name__}: {error}"
            raise SimulationError(seed, problem, cluster.events) from error


class SimulatedCluster:
    """The cluster of a simulated test. Brokers are machines broker1, broker2, ...; a test runs on
    the machine `test`, and may start its services on machines of their own."""

    schedule: FaultSchedule

    def __init__(self, simulation: Simulation, brokers: int, settings: Mapping[str, str]) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self.simulation = simulation
        # Random numbers of the test.
        self.rng: random.Random = simulation.stream("test")
        self.events: list[str] = []
        ids = range(1, brokers + 1)
        factor = min(brokers, 3)
        voters = ",".join(f"{node_id}@broker{node_id}:9093" for node_id in ids)
        configs = {
            f"broker{node_id}": read_node_config(
                _PROPERTIES.format(
                    node_id=node_id, voters=voters, factor=factor, min_isr=min(factor, 2)
                ).encode(),
                "simulate",
                dict(settings),
            )
            for node_id in ids
        }
        nodes = build_nodes(
            simulation,
            configs,
            self.note,
            lambda node_id, error: self.note(f"broker{node_id} ends: {error}"),
        )
        self.nodes: tuple[ClusterNode, ...] = tuple(nodes.values())
        self.bootstrap_servers = ",".join(f"{name}:{_PORT}" for name in configs)

    def note(self, event: str) -> None:
        """Add a line to the report of a failure."""
        self.events.append(f"{self.simulation.now():.3f} s: {event}")

    def machine(self, name: str) -> Node:
        """Return a machine for a service: `start` runs a coroutine on it, `crash` kills its
        process, `restart` allows another `start`."""
        is_new = name not in self.simulation.nodes
        machine = self.simulation.node(name)
        if is_new:
            machine.set_speed(_CALLBACK_S)
        return machine

    @contextlib.asynccontextmanager
    async def client(self) -> Any:
        """Connect Penstock's client from the machine of the test, as soon as a broker answers."""
        world = self.simulation.node(TEST_MACHINE).world
        while True:
            client = Client(world, self.bootstrap_servers, request_timeout_s=5.0)
            try:
                await client.__aenter__()
                break
            except ConnectionFailed:
                await asyncio.sleep(_POLL_S)
        try:
            yield client
        finally:
            await client.__aexit__(None, None, None)

    async def create_topic(self, name: str, *, partitions: int = 1, **configs: str) -> None:
        """Create a topic. Names of configs have underscores in place of dots."""
        async with self.client() as client:
            await client.admin.create_topic(
                name,
                partitions=partitions,
                configs={key.replace("_", "."): value for key, value in configs.items()},
            )

    async def wait_ready(self) -> None:
        """Wait until all brokers serve and know each other."""
        async with asyncio.timeout(_READY_WITHIN_S):
            for node in self.nodes:
                await self._wait_ready(f"{node.name}:{_PORT}")

    async def _wait_ready(self, address: str) -> None:
        world = self.simulation.node(TEST_MACHINE).world
        while True:
            with contextlib.suppress(KafkaError):
                async with Client(world, address, request_timeout_s=5.0) as client:
                    if len((await client.admin.describe_cluster()).brokers) == len(self.nodes):
                        return
            await asyncio.sleep(_POLL_S)

    async def calm(self) -> None:
        """End all faults, let all brokers run, and wait until all replicas are in sync."""
        self.schedule.end()
        self.note("the faults are over")
        await self.wait_ready()
        async with asyncio.timeout(_READY_WITHIN_S):
            while not await self._is_in_sync():
                await asyncio.sleep(_POLL_S)

    async def _is_in_sync(self) -> bool:
        try:
            async with self.client() as client:
                return all(
                    partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
                    for topic in await client.admin.describe_topics()
                    for partition in topic.partitions
                )
        except KafkaError:
            return False


@contextlib.contextmanager
def _simulated_modules(simulation: Simulation) -> Iterator[None]:
    """Let the event loop's connections, `time`, `random` and `os.urandom` follow the simulation.
    Code in other threads is not affected, except by the state of `random`."""

    def machine() -> Node | None:
        process = current_process() if _running_loop() is simulation.loop else None
        return None if process is None else simulation.nodes[process.name]

    async def create_connection(
        factory: ProtocolFactory, host: str, port: int, *, ssl: object = None, **_options: object
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        node = machine()
        if ssl or node is None:
            raise RuntimeError("a simulated machine has connections without TLS only")
        return await node.world.network.connect(factory, host, port)

    def clock(name: str, read: Callable[[Node], float]) -> Callable[[], float]:
        original: Callable[[], float] = getattr(time, name)

        def now() -> float:
            node = machine()
            return original() if node is None else read(node)

        return now

    bytes_rng, original_urandom = simulation.stream("os.urandom"), os.urandom

    def urandom(size: int, /) -> bytes:
        return original_urandom(size) if machine() is None else bytes_rng.randbytes(size)

    changed: list[tuple[Any, str, Any]] = [
        (time, "time", clock("time", lambda node: node.clock.now_ms() / 1000)),
        (time, "time_ns", clock("time_ns", lambda node: node.clock.now_ms() * 1_000_000)),
        (time, "monotonic", clock("monotonic", lambda node: node.clock.monotonic())),
        (time, "perf_counter", clock("perf_counter", lambda node: node.clock.monotonic())),
        (os, "urandom", urandom),
        (simulation.loop, "create_connection", create_connection),
        *sim_aiokafka.changes(lambda: machine() is not None),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _new in changed]
    state = random.getstate()
    random.seed(simulation.seed)
    try:
        for owner, name, new in changed:
            setattr(owner, name, new)
        yield
    finally:
        random.setstate(state)
        for owner, name, old in before:
            setattr(owner, name, old)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()
