"""What lies between the simulated machines: who can reach whom, how long it takes, and the faults
of all that.

Owns machines as the network sees them and the state of the paths between them. It must never know
what is sent.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.world.sim.loop import SimLoop
from penstock.world.sim.streams import stream
from penstock.world.sim.trace import Trace

FIRST_FREE_PORT = 32_768
# A sender gives up when nothing was acknowledged for so long (Linux: about 15 minutes, or what
# TCP_USER_TIMEOUT says).
RETRANSMIT_TIMEOUT_S = 60.0
# Now and then a packet is lost and sent again: much later than the others.
SLOW_PACKETS = 0.01
SLOW_PACKET_DELAY_S = 0.2


class Link(Protocol):
    """One direction of a connection, as the faults see it."""

    source: str
    target: str

    def wake(self) -> None:
        """The state of a path or machine has changed: look again."""

    def cut(self) -> None:
        """The connection is reset under it."""


class Machine:
    """Without power it answers nothing; with power but without a process it refuses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True
        # None: the port is taken, but whoever comes is refused.
        self.listeners: dict[int, Callable[..., Any] | None] = {}
        self._next_port = FIRST_FREE_PORT

    def free_port(self) -> int:
        while self._next_port in self.listeners:
            self._next_port += 1
        self._next_port += 1
        return self._next_port - 1


class Fabric:
    """`delay_s` are the shortest and longest usual delays of a packet, `split` is how often one is
    read in two parts."""

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
        """Nothing gets from source to target any more; the other way is as it was."""
        self._check_names((source, target))
        self._blocked.add((source, target))
        self.trace.record("-", "block", source, target)
        self._wake(source, target)

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing gets from these to those, nor back."""
        far = sorted(others)  # sets may come in: their order must not show
        for one in sorted(some):
            for other in far:
                self.block(one, other)
                self.block(other, one)

    def heal(self) -> None:
        """Every path is open again. What was held back arrives, unless its sender gave up."""
        blocked, self._blocked = sorted(self._blocked), set()
        self.trace.record("-", "heal")
        for source, target in blocked:
            self._wake(source, target)

    def cut(self, one: str, other: str) -> None:
        """Resets every connection between the two."""
        self._check_names((one, other))
        self.trace.record("-", "cut", one, other)
        for link in list(self.links.values()):
            if {link.source, link.target} == {one, other}:
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
                    f"there is no node {name!r} to put a fault on; there are "
                    f"{sorted(self.machines)}"
                )

    def _wake(self, one: str, other: str) -> None:
        for link in list(self.links.values()):
            if {link.source, link.target} == {one, other}:
                link.wake()

    # What connections ask

    def open(self, source: str, target: str) -> bool:
        """Whether packets get from source to target."""
        return (source, target) not in self._blocked and self.machines[target].powered

    def acknowledged(self, source: str, target: str) -> bool:
        """Whether they get there and their acknowledgements come back."""
        return self.open(source, target) and (target, source) not in self._blocked

    def rng(self, source: str, target: str) -> random.Random:
        """A stream for each path, so that traffic on one does not shift the others."""
        if (source, target) not in self._streams:
            self._streams[source, target] = stream(self._seed, f"network/{source}>{target}")
        return self._streams[source, target]

    def delay(self, source: str, target: str) -> float:
        rng = self.rng(source, target)
        shortest, longest = self.delay_s
        slow = SLOW_PACKET_DELAY_S if rng.random() < SLOW_PACKETS else 0.0
        return rng.uniform(shortest, longest) + slow

    def number(self) -> int:
        self._numbers += 1
        return self._numbers


def network_error(number: int, what: str) -> OSError:
    """OSError picks the subclass (ConnectionResetError and so on) by the number."""
    return OSError(number, f"{os.strerror(number)}: {what}")


def reset_error() -> OSError:
    return network_error(errno.ECONNRESET, "the peer or the network has ended the connection")
