"""The Network of a simulated process: listens and connects over the fabric."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable
from functools import partial

from penstock.world import ProtocolFactory
from penstock.world.sim.errors import NodeCrashed
from penstock.world.sim.fabric import Fabric, Machine, network_error, reset_error
from penstock.world.sim.frames import Apis
from penstock.world.sim.pipe import Pipe
from penstock.world.sim.process import SimProcess
from penstock.world.sim.transport import Address, SimTransport

OWN_NAMES = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
CONNECT_TIMEOUT_S = 30.0
# A machine without power does not answer ARP: the connecting kernel gives up after this time.
UNREACHABLE_AFTER_S = 3.0


class SimListener:
    def __init__(self, machine: Machine, port: int, accept: Callable[..., SimTransport]) -> None:
        self._machine = machine
        self._accept = accept
        self.port = port

    async def accept(self) -> None:
        self._machine.listeners[self.port] = self._accept

    def close(self) -> None:
        self._machine.listeners.pop(self.port, None)

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class SimNetwork:
    """`crash` ends its connections and listeners."""

    def __init__(self, fabric: Fabric, machine: Machine, process: SimProcess) -> None:
        self._fabric = fabric
        self._machine = machine
        self._process = process
        self._transports: dict[SimTransport, None] = {}  # a dict for its order

    def max_descriptors(self) -> int | None:
        return None

    async def listen(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        _backlog: int = 0,
        *,
        accepting: bool = True,
    ) -> SimListener:
        self._check_alive()
        if self._resolve(host) is not self._machine:
            raise network_error(
                errno.EADDRNOTAVAIL, f"{host!r} is not an address of {self._machine.name}"
            )
        port = port or self._machine.free_port()
        if port in self._machine.listeners:
            raise network_error(errno.EADDRINUSE, f"port {port} of {self._machine.name}")
        accept = partial(self._accept, factory)
        self._machine.listeners[port] = accept if accepting else None
        self._fabric.trace.record(self._machine.name, "listen", port)
        return SimListener(self._machine, port, accept)

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        self._check_alive()
        target = self._resolve(host)
        await self._reach(target)
        client = self._connected(target, port)
        try:
            await asyncio.sleep(self._delay(target.name, self._machine.name))
        except BaseException:
            if client is not None:
                client.abort()
            raise
        if client is None:
            raise network_error(errno.ECONNREFUSED, f"no listener on port {port} of {target.name}")
        if client.gone:
            raise reset_error()
        protocol = factory()
        client.start(protocol)
        return client, protocol

    def _resolve(self, host: str) -> Machine:
        if host in OWN_NAMES:
            return self._machine
        if host not in self._fabric.machines:
            raise socket.gaierror(socket.EAI_NONAME, f"no node {host!r} in the simulation")
        return self._fabric.machines[host]

    async def _reach(self, target: Machine) -> None:
        """Deliver the first packet, retransmitted after 1, 2, 4, ... seconds as TCP does."""
        waited, pause = 0.0, 1.0
        await asyncio.sleep(self._delay(self._machine.name, target.name))
        while not self._fabric.acknowledged(self._machine.name, target.name):
            if not target.powered and waited >= UNREACHABLE_AFTER_S:
                raise network_error(errno.EHOSTUNREACH, f"{target.name} has no power")
            if waited >= CONNECT_TIMEOUT_S:
                raise network_error(errno.ETIMEDOUT, f"{target.name} does not answer")
            await asyncio.sleep(pause)
            waited, pause = waited + pause, pause * 2

    def _delay(self, source: str, target: str) -> float:
        return self._fabric.delay(self._fabric.rng(source, target))

    def _connected(self, target: Machine, port: int) -> SimTransport | None:
        """Create both ends and schedule the accept. Return our end, or None if the port refuses."""
        accept = target.listeners.get(port)
        self._fabric.trace.record(
            self._machine.name, "connect", target.name, port, accept is not None
        )
        if accept is None:
            return None
        here, there = (self._machine.name, self._machine.free_port()), (target.name, port)
        number = self._fabric.number()
        apis: Apis = {}
        out = Pipe(self._fabric, here[0], there[0], apis, is_request=True)
        back = Pipe(self._fabric, there[0], here[0], apis, is_request=False)
        client = self._end(number, (here, there), (back, out))
        client.peer = accept(number, (there, here), (out, back))
        client.peer.peer = client
        return client

    def _accept(
        self,
        factory: ProtocolFactory,
        number: int,
        names: tuple[Address, Address],
        pipes: tuple[Pipe, Pipe],
    ) -> SimTransport:
        transport = self._end(number, names, pipes)
        self._fabric.loop.call_soon(
            _start_accepted, transport, factory, context=self._process.context
        )
        return transport

    def _end(
        self, number: int, names: tuple[Address, Address], pipes: tuple[Pipe, Pipe]
    ) -> SimTransport:
        transport = SimTransport(self._fabric, number, names, pipes, self._process)
        transport.forget = partial(self._transports.pop, transport, None)
        self._transports[transport] = None
        return transport

    def crash(self, rng: random.Random, *, power_loss: bool) -> None:
        self._machine.listeners.clear()
        for transport in list(self._transports):
            transport.crash(rng, power_loss=power_loss)

    def _check_alive(self) -> None:
        if self._process.dead:
            raise NodeCrashed(f"this network belongs to a crashed process of {self._process.name}")


def _start_accepted(transport: SimTransport, factory: ProtocolFactory) -> None:
    if not transport.gone:
        transport.start(factory())
