"""Every fault of the simulated network. test_world_network.py covers what both worlds share."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.world.sim import Node, Simulation, SimulationFailed
from penstock.world.sim.fabric import RETRANSMIT_TIMEOUT_S

PORT = 9092


class Peer(asyncio.Protocol):
    """Records the received data and how the connection ended."""

    def __init__(self) -> None:
        self.data = b""
        self.chunks: list[int] = []
        self.end = "open"
        self.transport: Any = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks.append(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end = type(exc).__name__ if exc else "closed"
        self.ended.set()


class Cluster:
    """Two nodes, a and b, and a connection from a to b."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed, trace_lines=100)
        self.fabric = self.simulation.network
        self.a, self.b = self.simulation.node("a"), self.simulation.node("b")
        self.client, self.server = Peer(), Peer()

    async def connect(self) -> None:
        await self.b.run(listen(self.b, lambda: self.server))
        await self.a.run(connect(self.a, self.client))
        self.client.transport.write(b"hello")
        await asyncio.sleep(1)
        assert self.server.data == b"hello"


async def listen(node: Node, factory: Callable[[], Peer]) -> None:
    await node.world.network.listen(factory, "", PORT)


async def connect(node: Node, peer: Peer, host: str = "b") -> None:
    await node.world.network.connect(lambda: peer, host, PORT)


def play(scenario: Callable[[Cluster], Coroutine[Any, Any, None]], seed: int = 1) -> Cluster:
    cluster = Cluster(seed)
    cluster.simulation.run(scenario(cluster))
    return cluster


def test_bytes_arrive_in_order_joined_and_split() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        for number in range(2000):
            cluster.client.transport.write(b"%06d" % number)
            await asyncio.sleep(0.0001)
        await asyncio.sleep(1)
        assert cluster.server.data == b"hello" + b"".join(
            b"%06d" % number for number in range(2000)
        )
        assert any(size > 6 for size in cluster.server.chunks), "joined"
        assert any(size % 6 for size in cluster.server.chunks[1:]), "split"

    play(scenario)


def test_a_cut_resets_both_ends() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.cut("a", "b")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cluster.client.end == cluster.server.end == "ConnectionResetError"
        await cluster.a.run(connect(cluster.a, Peer()))

    play(scenario)


def test_a_partition_holds_data_back_until_it_heals() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.partition(["a"], ["b"])
        cluster.client.transport.write(b" there")
        cluster.server.transport.write(b"back")
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S / 2)
        assert (cluster.server.data, cluster.client.data) == (b"hello", b"")
        cluster.fabric.heal()
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S)
        assert (cluster.server.data, cluster.client.data) == (b"hello there", b"back")
        assert cluster.client.end == "open"

    play(scenario)


def test_a_partition_may_be_one_way() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.block("a", "b")
        cluster.client.transport.write(b" there")
        cluster.server.transport.write(b"back")
        await asyncio.sleep(1)
        assert (cluster.server.data, cluster.client.data) == (b"hello", b"back")
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S)
        assert cluster.client.end == "TimeoutError"
        assert cluster.server.end == "TimeoutError", "its data arrived, but was not acknowledged"

    play(scenario)


def test_after_a_long_partition_the_sender_times_out_and_its_peer_is_reset_on_write() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.partition(["a"], ["b"])
        cluster.client.transport.write(b" there")
        await cluster.client.ended.wait()
        assert cluster.client.end == "TimeoutError"
        cluster.fabric.heal()
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S)
        assert cluster.server.end == "open", "it sent nothing, so it cannot know"
        cluster.server.transport.write(b"anybody?")
        await asyncio.sleep(1)
        assert cluster.server.end == "ConnectionResetError"
        assert cluster.server.data == b"hello"

    play(scenario)


def test_a_connect_times_out_in_a_partition_and_succeeds_after_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.block("b", "a")
        with pytest.raises(TimeoutError):
            await cluster.a.run(connect(cluster.a, Peer()))
        asyncio.get_running_loop().call_later(2, cluster.fabric.heal)
        await cluster.a.run(connect(cluster.a, Peer()))

    play(scenario)


def test_a_killed_node_closes_its_connections_and_refuses_new_ones() -> None:
    ends = set[str]()

    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.b.crash()
        await asyncio.sleep(1)
        ends.add(cluster.client.end)
        assert cluster.server.end == "open", "a dead process gets no callbacks"
        with pytest.raises(ConnectionRefusedError):
            await cluster.a.run(connect(cluster.a, Peer()))
        cluster.b.restart()
        await cluster.b.run(listen(cluster.b, Peer))
        await cluster.a.run(connect(cluster.a, Peer()))

    for seed in range(10):
        play(scenario, seed)
    assert ends == {"closed", "ConnectionResetError"}


def test_a_node_without_power_does_not_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.b.crash(power_loss=True)
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S * 2)
        assert cluster.client.end == "open"
        with pytest.raises(OSError, match="has no power") as caught:
            await cluster.a.run(connect(cluster.a, Peer()))
        assert caught.value.errno == errno.EHOSTUNREACH
        cluster.client.transport.write(b"anybody?")
        await asyncio.sleep(RETRANSMIT_TIMEOUT_S * 2)
        assert cluster.client.end == "TimeoutError"

    play(scenario)


def test_a_node_restarted_after_a_power_loss_resets_old_connections() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.b.crash(power_loss=True)
        cluster.client.transport.write(b"anybody?")
        await asyncio.sleep(1)
        assert cluster.client.end == "open"
        cluster.b.restart()
        await asyncio.sleep(1)
        assert cluster.client.end == "ConnectionResetError"
        assert cluster.server.data == b"hello"

    play(scenario)


def test_data_for_a_closed_end_is_answered_with_a_reset() -> None:
    class HalfOpen(Peer):
        def eof_received(self) -> bool:
            return True

    async def scenario(cluster: Cluster) -> None:
        cluster.client = HalfOpen()
        await cluster.connect()
        cluster.server.transport.close()
        await asyncio.sleep(1)
        assert cluster.client.end == "open"
        cluster.client.transport.write(b"more")
        await asyncio.sleep(1)
        assert cluster.client.end == "ConnectionResetError"

    play(scenario)


def test_data_sent_to_a_killed_process_does_not_reach_the_next_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.client.transport.write(b"lost")
        cluster.b.crash()
        cluster.b.restart()
        successor = Peer()
        await cluster.b.run(listen(cluster.b, lambda: successor))
        await asyncio.sleep(1)
        assert cluster.server.data == b"hello"
        assert successor.data == b""

    play(scenario)


def test_a_cancelled_connect_leaves_no_connection() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.b.run(listen(cluster.b, lambda: cluster.server))
        cluster.fabric.delay_s = (1.0, 1.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cluster.a.run(connect(cluster.a, Peer())), 1.5)
        await asyncio.sleep(5)
        assert cluster.server.end == "ConnectionResetError"
        assert not cluster.fabric.links

    play(scenario)


def test_closed_connections_leave_no_links() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.b.run(listen(cluster.b, Peer))
        for number in range(20):
            peer = Peer()
            await cluster.a.run(connect(cluster.a, peer))
            peer.transport.write(b"x")
            peer.transport.abort() if number % 2 else peer.transport.close()
        await asyncio.sleep(5)
        assert not cluster.fabric.links

    play(scenario)


def test_unknown_hosts_and_nodes_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(OSError, match="no node 'elsewhere' in the simulation"):
            await cluster.a.run(connect(cluster.a, Peer(), "elsewhere"))
        with pytest.raises(OSError, match="not an address of a"):
            await cluster.a.world.network.listen(Peer, "b", PORT)
        with pytest.raises(ValueError, match="no node 'c'"):
            cluster.fabric.block("a", "c")

    play(scenario)


def test_an_exception_of_a_protocol_fails_the_run() -> None:
    class Faulty(Peer):
        def data_received(self, data: bytes) -> None:
            raise LookupError(f"cannot read {data!r}")

    async def scenario(cluster: Cluster) -> None:
        cluster.server = Faulty()
        await cluster.connect()

    with pytest.raises(SimulationFailed, match=r"on b: .*cannot read"):
        play(scenario)
