"""The network between simulated machines: which paths are open, their delays, and their faults."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.world.sim.loop import SimLoop
from penstock.world.sim.rng import stream
from penstock.world.sim.trace import Trace

FIRST_FREE_PORT = 32_768
# A sender gives up after this time without an acknowledgement (on Linux about 15 minutes, or
# TCP_USER_TIMEOUT).
RETRANSMIT_TIMEOUT_S = 60.0
# The share of packets that are lost and retransmitted, and their extra delay.
RETRANSMITTED = 0.01
RETRANSMIT_DELAY_S = 0.2


class Link(Protocol):
    """One direction of a connection, as faults use it."""

    source: str
    target: str

    def wake(self) -> None:
        """Check the path again: the state of a path or machine changed."""

    def cut(self) -> None:
        """Reset the connection."""


class Machine:
    """A host. Without power it does not answer; with power but no listener it refuses
    connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True
        # None: the port is bound, but connections are refused.
        self.listeners: dict[int, Callable[..., Any] | None] = {}
        self._next_port = FIRST_FREE_PORT

    def free_port(self) -> int:
        while self._next_port in self.listeners:
            self._next_port += 1
        self._next_port += 1
        return self._next_port - 1


class Fabric:
    """`delay_s` are the minimum and maximum delay of a packet. `split` is the probability that a
    read returns only part of what arrived."""

    def __init__(self, loop: SimLoop, seed: int, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.delay_s = (0.000_1, 0.002)
        self.split = 0.1
        self.machines: dict[str, Machine] = {}
        self.links: dict[int, Link] = {}
        self._seed = seed
        self._blocked: set[tuple[str, str]] = set()
        self._streams: dict[tuple[str, str], random.Random] = {}
        self._numbers = 0

    # Faults

    def block(self, source: str, target: str) -> None:
        """Hold back packets from source to target. The other direction is not affected."""
        self._check_names((source, target))
        self._blocked.add((source, target))
        self.trace.record("-", "block", source, target)
        self._wake(source, target)

    def partition(self, group: Iterable[str], others: Iterable[str]) -> None:
        """Hold back packets between two groups of nodes, in both directions."""
        far = sorted(others)  # callers may pass sets, whose order differs between runs
        for near_name in sorted(group):
            for far_name in far:
                self.block(near_name, far_name)
                self.block(far_name, near_name)

    def heal(self) -> None:
        """Open all paths. Packets held back arrive, unless their sender gave up."""
        blocked, self._blocked = sorted(self._blocked), set()
        self.trace.record("-", "heal")
        for source, target in blocked:
            self._wake(source, target)

    def cut(self, first: str, second: str) -> None:
        """Reset every connection between two nodes."""
        self._check_names((first, second))
        self.trace.record("-", "cut", first, second)
        for link in list(self.links.values()):
            if {link.source, link.target} == {first, second}:
                link.cut()

    def set_power(self, name: str, powered: bool) -> None:
        self.machines[name].powered = powered
        for link in list(self.links.values()):
            if link.target == name:
                link.wake()

    def _check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.machines:
                raise ValueError(
                    f"no node {name!r} in the simulation; its nodes are {sorted(self.machines)}"
                )

    def _wake(self, first: str, second: str) -> None:
        for link in list(self.links.values()):
            if {link.source, link.target} == {first, second}:
                link.wake()

    # Used by connections

    def open(self, source: str, target: str) -> bool:
        """Whether packets from source reach target."""
        return (source, target) not in self._blocked and self.machines[target].powered

    def acknowledged(self, source: str, target: str) -> bool:
        """Whether packets from source reach target and their acknowledgements return."""
        return self.open(source, target) and (target, source) not in self._blocked

    def rng(self, source: str, target: str) -> random.Random:
        """Return the random stream of a path. Traffic on one path does not change the others."""
        if (source, target) not in self._streams:
            self._streams[source, target] = stream(self._seed, f"network/{source}>{target}")
        return self._streams[source, target]

    def delay(self, source: str, target: str) -> float:
        rng = self.rng(source, target)
        shortest, longest = self.delay_s
        slow = RETRANSMIT_DELAY_S if rng.random() < RETRANSMITTED else 0.0
        return rng.uniform(shortest, longest) + slow

    def number(self) -> int:
        self._numbers += 1
        return self._numbers


def network_error(number: int, detail: str) -> OSError:
    """Return the OSError of an errno. OSError picks the subclass, ConnectionResetError for
    instance."""
    return OSError(number, f"{os.strerror(number)}: {detail}")


def reset_error() -> OSError:
    return network_error(errno.ECONNRESET, "the peer or the network reset the connection")
