"""The handshakes of the TLS listeners of a server: those for clients or, apart from them, those of
controllers and between brokers.

A connection goes through three stages:
- *silent*: accepted, and its first message has not arrived. It costs a descriptor, and counts for
  the limits on connections.
- *ready*: its first message is there, and it waits in the line. Bytes that are not TLS end it here.
- *running*: the event loop carries out the handshake. At most MAX_HANDSHAKES run at once, of one
  address MAX_HANDSHAKES_PER_ADDRESS, and a few begin in one turn of the loop, since each takes a
  millisecond of it. The first message has to be complete before, so that the peers of all places
  cannot ask for this work in the same turn. If the server asks a client for another key, most of
  the work comes later: few of these run.

A handshake must be complete within HANDSHAKE_TIMEOUT_S, and so must the time before. When others
are ready, a running one whose peer has been silent for HANDSHAKE_PATIENCE_S gives way. So peers
that never complete their handshakes delay others by about a second, whatever their number.
Addresses take turns in the line; of one address, the newest goes first: under a flood, the oldest
have probably given up. The addresses of one IPv6 network count as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import socket
import ssl
import sys
import termios
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from penstock.limits import (
    HANDSHAKE_CHECK_S,
    HANDSHAKE_PATIENCE_S,
    HANDSHAKE_TIMEOUT_S,
    HANDSHAKES_A_TURN,
    MAX_CLIENT_HELLO_BYTES,
    MAX_HANDSHAKES,
    MAX_HANDSHAKES_AWAITING_KEYS,
    MAX_HANDSHAKES_PER_ADDRESS,
)
from penstock.security.tls.alerts import handshake_socket
from penstock.security.tls.client_hello import HelloRefused, check_hello, missing_bytes
from penstock.server.state import ServerState
from penstock.server.tls import failures
from penstock.server.tls.failures import FailureLog

# The first byte of a TLS record with a ClientHello.
_HANDSHAKE_RECORD = b"\x16"


@dataclass(slots=True)
class TlsCounters:
    """Handshakes since the start."""

    completed: int = 0
    failed: int = 0


class Arrival:
    """A connection before and during its handshake. `make_protocol` gets the arrival and returns
    its protocol, which calls `complete` when the handshake is."""

    def __init__(
        self,
        handshakes: Handshakes,
        accepted: socket.socket,
        address: str,
        listener_name: str,
        context: Callable[[], ssl.SSLContext],
        make_protocol: Callable[[Arrival], asyncio.BaseProtocol],
        now: float,
    ) -> None:
        self.socket = accepted
        self.address = address
        # Who shares the places of an address.
        self.origin = _origin(address)
        self.listener_name = listener_name
        self.context = context
        self.make_protocol = make_protocol
        # When it was accepted or its handshake began.
        self.last_active = now
        self.is_idle = True
        # How many bytes must be there before it is looked at again.
        self.expected_bytes = 1
        self.needs_another_key = False
        self.failure: str | None = None
        self._handshakes = handshakes

    def complete(self) -> None:
        """The handshake is complete: the connection counts for itself from now on."""
        self._handshakes.completed(self)

    def refuse(self, reason: str) -> None:
        """The certificate is valid, and its name is not."""
        self._handshakes.refused(self, reason)

    def evict(self, reason: str) -> None:
        """Another connection needs the place."""
        self._handshakes.end(self, reason)


class Handshakes:
    """Make it within a running event loop."""

    def __init__(self, state: ServerState) -> None:
        self.counters = TlsCounters()
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._failures = FailureLog()
        # In the order of arrival.
        self._silent: dict[Arrival, None] = {}
        # By origin, the newest last. The first origin has the next turn.
        self._ready: dict[str, list[Arrival]] = {}
        # In the order of start.
        self._running: dict[Arrival, asyncio.Task[None]] = {}
        self._by_origin: Counter[str] = Counter()
        self._begin_handle: asyncio.Handle | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many are silent, ready and running."""
        return len(self._silent), sum(map(len, self._ready.values())), len(self._running)

    def arrive(
        self,
        accepted: socket.socket,
        address: str,
        listener_name: str,
        context: Callable[[], ssl.SSLContext],
        make_protocol: Callable[[Arrival], asyncio.BaseProtocol],
    ) -> None:
        now = self._loop.time()
        arrival = Arrival(self, accepted, address, listener_name, context, make_protocol, now)
        self._state.update_quotas()
        if self._state.stopping or not self._state.quotas.admit(
            arrival, self._state.clock.monotonic()
        ):
            accepted.close()
            return
        self._silent[arrival] = None
        self._loop.add_reader(accepted, self._first_bytes, arrival)
        self._check_later()

    async def stop(self) -> None:
        """End all of them."""
        waiting = [arrival for line in self._ready.values() for arrival in line]
        for arrival in (*self._silent, *waiting, *self._running):
            self.end(arrival, "the server stops")
        for handle in (self._begin_handle, self._check_timer):
            if handle is not None:
                handle.cancel()
        if self._running:
            await asyncio.gather(*self._running.values())

    def end(self, arrival: Arrival, reason: str) -> None:
        """End a connection that has not completed its handshake."""
        if arrival in self._running:
            # The transport sees the end of the stream, and the task the failure.
            arrival.failure = arrival.failure or reason
            with contextlib.suppress(OSError):
                arrival.socket.shutdown(socket.SHUT_RDWR)
            return
        if arrival in self._silent:
            del self._silent[arrival]
            self._loop.remove_reader(arrival.socket)
        else:
            self._leave_line(arrival)
        self._close(arrival)

    def _close(self, arrival: Arrival) -> None:
        arrival.socket.close()
        self._state.quotas.release(arrival)

    def completed(self, arrival: Arrival) -> None:
        self.counters.completed += 1
        self._state.quotas.release(arrival)

    def refused(self, arrival: Arrival, reason: str) -> None:
        self.counters.completed -= 1
        self._fail(arrival, reason)

    # Stages

    def _first_bytes(self, arrival: Arrival) -> None:
        try:
            first = arrival.socket.recv(MAX_CLIENT_HELLO_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:  # a port scan, or a load balancer's check
            self.end(arrival, failures.CLOSED)
            return
        if not first.startswith(_HANDSHAKE_RECORD):
            self._fail(arrival, failures.PLAINTEXT)
            self.end(arrival, failures.PLAINTEXT)
            return
        with contextlib.suppress(HelloRefused):  # its handshake answers with an alert
            missing = missing_bytes(first)
            # With fewer bytes than expected, the peer has closed its side.
            if missing and len(first) >= arrival.expected_bytes:
                if arrival.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    # A reset connection still has its bytes, and is not reported again.
                    self.end(arrival, failures.CLOSED)
                    return
                arrival.expected_bytes = len(first) + missing
                arrival.socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVLOWAT, arrival.expected_bytes
                )
                return
            arrival.needs_another_key = not missing and check_hello(first)
        arrival.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        del self._silent[arrival]
        self._loop.remove_reader(arrival.socket)
        self._ready.setdefault(arrival.origin, []).append(arrival)
        self._begin_soon()

    def _begin_soon(self) -> None:
        if self._begin_handle is None and self._ready:
            self._begin_handle = self._loop.call_soon(self._begin_some)

    def _begin_some(self) -> None:
        self._begin_handle = None
        for _ in range(HANDSHAKES_A_TURN):
            arrival = self._next()
            if arrival is None:
                return
            if arrival.needs_another_key and self._awaiting_keys >= MAX_HANDSHAKES_AWAITING_KEYS:
                self._fail(arrival, failures.ANOTHER_KEY)
                self._close(arrival)
                continue
            arrival.last_active = self._loop.time()
            self._by_origin[arrival.origin] += 1
            self._running[arrival] = self._loop.create_task(self._run(arrival))
        self._begin_soon()

    @property
    def _awaiting_keys(self) -> int:
        return sum(arrival.needs_another_key for arrival in self._running)

    def _next(self) -> Arrival | None:
        """Take the next connection of the line, or return None if no handshake may begin."""
        if len(self._running) >= MAX_HANDSHAKES:
            return None
        for origin in self._ready:
            if self._by_origin[origin] < MAX_HANDSHAKES_PER_ADDRESS:
                line = self._ready.pop(origin)
                arrival = line.pop()
                if line:
                    self._ready[origin] = line  # behind the other addresses
                return arrival
        return None

    def _leave_line(self, arrival: Arrival) -> None:
        line = self._ready[arrival.origin]
        line.remove(arrival)
        if not line:
            del self._ready[arrival.origin]

    async def _run(self, arrival: Arrival) -> None:
        handshake_socket.set(arrival.socket)
        try:
            await self._loop.connect_accepted_socket(
                lambda: arrival.make_protocol(arrival),
                arrival.socket,
                ssl=arrival.context(),
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            self._fail(arrival, arrival.failure or failures.reason_of(error))
        finally:
            del self._running[arrival]
            self._by_origin[arrival.origin] -= 1
            if not self._by_origin[arrival.origin]:
                del self._by_origin[arrival.origin]
            self._state.quotas.release(arrival)
            self._begin_soon()

    def _fail(self, arrival: Arrival, reason: str) -> None:
        self.counters.failed += 1
        if not self._state.stopping:
            self._failures.add(arrival.address, arrival.listener_name, reason, self._loop.time())

    # Time limits

    def _check_later(self) -> None:
        if self._check_timer is None and not self._state.stopping:
            self._check_timer = self._loop.call_later(HANDSHAKE_CHECK_S, self._check)

    def _check(self) -> None:
        self._check_timer = None
        late = self._loop.time() - HANDSHAKE_TIMEOUT_S
        while self._silent and (oldest := next(iter(self._silent))).last_active <= late:
            reason = failures.SILENT if oldest.expected_bytes == 1 else failures.SLOW
            self._fail(oldest, reason)
            self.end(oldest, reason)
        for line in list(self._ready.values()):
            while line and (oldest := line[0]).last_active <= late:
                self._fail(oldest, failures.SLOW)
                self.end(oldest, failures.SLOW)
        if self._ready:
            self._make_room()
        if self._silent or self._ready or self._running:
            self._check_later()

    def _make_room(self) -> None:
        """End running handshakes whose peers are silent: as many as others wait."""
        now, waiting = self._loop.time(), sum(map(len, self._ready.values()))
        for arrival in list(self._running):
            if waiting == 0 or now - arrival.last_active < HANDSHAKE_PATIENCE_S:
                return
            if arrival.failure is None and _is_silent(arrival.socket):
                self.end(arrival, failures.STALLED)
                waiting -= 1


def _origin(address: str) -> str:
    """Return the address or, of IPv6, its network: a machine has a whole /64 of addresses."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((parsed, 64), strict=False))


def _is_silent(accepted: socket.socket) -> bool:
    """Return True if nothing has arrived that was not read."""
    if accepted.fileno() < 0:
        return False
    unread = fcntl.ioctl(accepted.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(unread, sys.byteorder) == 0
