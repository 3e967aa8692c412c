"""The network between simulated machines: which paths are open, their delays, and their faults."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.world.sim.frames import Frame, FrameTrigger
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
# On a path with a limited bandwidth, data travels in packets of this many bytes, or of what the
# path carries in this time if that is more.
PACKET_BYTES = 1460
PACKET_S = 0.005


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


class Bandwidth:
    """A path that carries `bytes_per_s`. All connections on it share it."""

    __slots__ = ("_bytes_per_s", "_free_at", "packet_bytes")

    def __init__(self, bytes_per_s: float) -> None:
        self.packet_bytes = max(PACKET_BYTES, int(bytes_per_s * PACKET_S))
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def send(self, count: int, now: float) -> float:
        """Send a packet. Return when its last byte has left."""
        self._free_at = max(self._free_at, now) + count / self._bytes_per_s
        return self._free_at


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
        # Whether a path is blocked or a machine has no power.
        self.has_closed_paths = False
        self.bandwidths: dict[tuple[str, str], Bandwidth] = {}
        self.triggers: list[FrameTrigger] = []
        self._streams: dict[tuple[str, str], random.Random] = {}
        self._numbers = 0

    # Faults

    def block(self, source: str, target: str) -> None:
        """Hold back packets from source to target. The other direction is not affected."""
        self._check_names((source, target))
        self._blocked.add((source, target))
        self.has_closed_paths = True
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
        self._note_closed_paths()
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
        self._note_closed_paths()
        for link in list(self.links.values()):
            if link.target == name:
                link.wake()

    def _note_closed_paths(self) -> None:
        self.has_closed_paths = bool(self._blocked) or not all(
            machine.powered for machine in self.machines.values()
        )

    def set_bandwidth(self, source: str, target: str, bytes_per_s: float | None) -> None:
        """Limit how much a path carries. None ends the limit. What was sent before is not
        affected."""
        self._check_names((source, target))
        self.trace.record("-", "bandwidth", source, target, bytes_per_s)
        self.bandwidths.pop((source, target), None)
        if bytes_per_s is not None:
            self.bandwidths[source, target] = Bandwidth(bytes_per_s)

    def on_frame(
        self,
        action: Callable[[Frame], object],
        *,
        response: bool = False,
        api_key: int | None = None,
        source: str | None = None,
        target: str | None = None,
        nth: int = 1,
        after_bytes: int | None = None,
        hold_s: float = 0.0,
    ) -> FrameTrigger:
        """Run `action` once, at the nth request (or response) from now on that matches. See
        `FrameTrigger` for the moment."""
        self._check_names(name for name in (source, target) if name is not None)
        if nth < 1:
            raise ValueError(f"there is no frame number {nth}: the first is 1")
        trigger = FrameTrigger(
            action, not response, api_key, source, target, nth, after_bytes, hold_s
        )
        self.triggers.append(trigger)
        return trigger

    def forget(self, trigger: FrameTrigger) -> None:
        """End a trigger, unless it has fired."""
        if trigger in self.triggers:
            self.triggers.remove(trigger)

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

    def delay(self, rng: random.Random) -> float:
        """Draw the delay of a packet from the random stream of its path."""
        shortest, longest = self.delay_s
        slow = RETRANSMIT_DELAY_S if rng.random() < RETRANSMITTED else 0.0
        return shortest + (longest - shortest) * rng.random() + slow

    def take_triggers(self, frame: Frame) -> list[FrameTrigger]:
        """Return the triggers whose frame this is. They do not fire again."""
        fired = [trigger for trigger in self.triggers if trigger.matches(frame)]
        for trigger in fired:
            self.triggers.remove(trigger)
            self.trace.record(
                frame.source, "trigger", frame.target, frame.api_key, frame.is_request
            )
        return fired

    def number(self) -> int:
        self._numbers += 1
        return self._numbers


def network_error(number: int, detail: str) -> OSError:
    """Return the OSError of an errno. OSError picks the subclass, ConnectionResetError for
    instance."""
    return OSError(number, f"{os.strerror(number)}: {detail}")


def reset_error() -> OSError:
    return network_error(errno.ECONNRESET, "the peer or the network reset the connection")
