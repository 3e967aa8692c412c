"""One end of a simulated connection. It behaves as asyncio's transports do: buffers, back-pressure,
close, abort and reset.

Protocol callbacks run in the end's own process. Events from the network are scheduled there, so
that a paused or dead process does not see them.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterable

from penstock.ids import Buffer
from penstock.world.sim.fabric import Fabric, network_error, reset_error
from penstock.world.sim.pipe import Pipe
from penstock.world.sim.process import SimProcess
from penstock.world.sim.trace import fingerprint

Address = tuple[str, int]

# What the kernels on both sides buffer before the sender's own buffer fills.
KERNEL_BUFFER_BYTES = 128 * 1024
HIGH_WATER_BYTES = 64 * 1024


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        fabric: Fabric,
        number: int,
        names: tuple[Address, Address],
        pipes: tuple[Pipe, Pipe],
        process: SimProcess,
    ):
        super().__init__({"sockname": names[0], "peername": names[1]})
        self.label = f"{number}:{names[0][0]}>{names[1][0]}"
        self.peer: SimTransport
        self.forget: Callable[[], object]
        self._fabric = fabric
        self._node = names[0][0]
        self._process = process
        self._protocol: asyncio.BaseProtocol | None = None
        self._incoming, self._outgoing = pipes
        self._incoming.receiver = process
        self._incoming.arrived = self._receive
        self._incoming.was_cut = self._in_process(self._cut)
        self._outgoing.expired = self._in_process(self._expire)
        self._low, self._high = HIGH_WATER_BYTES // 4, HIGH_WATER_BYTES
        self._reading = True
        self._writing_paused = False
        self._write_ended = False
        self._closing = False
        self._gone = False

    def _in_process(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._soon(call)

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        self._fabric.loop.call_soon(call, *args, context=self._process.context)

    def _record(self, kind: str, *details: int) -> None:
        self._fabric.trace.record(self._node, kind, self.label, *details)

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol. Data or an end that arrived earlier follows connection_made."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._soon(self._receive)

    # Reading

    def _receive(self) -> None:
        if self._gone or self._closing:
            return self._refuse()
        if self._protocol is None or not self._reading:
            return None
        data = self._incoming.take()
        if data:
            self.peer._drained()
            self._deliver(data)
        if self._incoming.ended:
            self._receive_end()
        elif self._reading and not self._closing:
            self._incoming.resume()
        return None

    def _deliver(self, data: bytes) -> None:
        self._fabric.trace.record(self._node, "deliver", self.label, len(data), fingerprint(data))
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._fill(self._protocol, data)
        elif isinstance(self._protocol, asyncio.Protocol):
            self._protocol.data_received(data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        while data and self._reading and not self._closing:
            buffer = memoryview(protocol.get_buffer(len(data))).cast("B")
            count = min(len(buffer), len(data))
            if count == 0:
                raise RuntimeError("get_buffer() returned an empty buffer")
            part, data = data[:count], data[count:]
            buffer[:count] = part
            protocol.buffer_updated(count)
        if data and not self._closing:
            self._incoming.put_back(data)

    def _receive_end(self) -> None:
        self._record("end")
        self._incoming.close()
        if (
            not isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            or not self._protocol.eof_received()
        ):
            self.close()

    def _refuse(self) -> None:
        """Answer data for a closed end with a reset."""
        had_data = self._incoming.waiting
        self._incoming.close()
        if had_data:
            self._send_reset()
            self._soon(self._lose, None)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._soon(self._receive)

    # Writing

    def write(self, data: Buffer) -> None:
        if self._write_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or self._gone or not data:
            return
        data = bytes(data)
        self._fabric.trace.record(self._node, "send", self.label, len(data), fingerprint(data))
        self._outgoing.push(data)
        if (
            self._protocol is not None
            and not self._writing_paused
            and self.get_write_buffer_size() > self._high
        ):
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._write_ended:
            self._write_ended = True
            self._outgoing.push_end()

    def get_write_buffer_size(self) -> int:
        return max(0, self._outgoing.size - KERNEL_BUFFER_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 4 * low if low is not None else HIGH_WATER_BYTES
        self._low = low if low is not None else self._high // 4
        if not 0 <= self._low <= self._high:
            raise ValueError(
                f"high ({self._high}) must be at least low ({self._low}), and low at least 0"
            )

    def _drained(self) -> None:
        """The peer read data: resume the writer, or finish closing."""
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._soon(self._resume_writing)
        if self._closing and self.get_write_buffer_size() == 0:
            self._soon(self._lose, None)

    def _resume_writing(self) -> None:
        if self._protocol is not None and not self._gone:
            self._protocol.resume_writing()

    # Ending

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close after the written data has been sent."""
        if self._closing:
            return
        self._closing = True
        self._record("close")
        self._outgoing.push_end()
        if self.get_write_buffer_size() == 0:
            self._soon(self._lose, None)

    def abort(self) -> None:
        if not self._gone:
            self._send_reset()
            self._closing = True
            self._soon(self._lose, None)

    def _send_reset(self) -> None:
        self._outgoing.close()
        self._record("reset")
        loop = self._fabric.loop
        delay = self._fabric.delay(self._fabric.rng(self._outgoing.source, self._outgoing.target))
        loop.deliver_at(loop.now + delay, self._deliver_reset)

    def _deliver_reset(self) -> None:
        """Deliver a reset. It is sent only once: on a blocked path it is lost, and the peer learns
        of the end only when it sends."""
        if self._fabric.open(self._outgoing.source, self._outgoing.target):
            self.peer._in_process(self.peer._cut)()

    def _cut(self) -> None:
        self._lose(reset_error())

    def _expire(self) -> None:
        self._lose(network_error(errno.ETIMEDOUT, "the peer acknowledged nothing for too long"))

    def _lose(self, error: OSError | None) -> None:
        if self._gone:
            return
        self._gone = self._closing = True
        self._record("lost", 0 if error is None else error.errno or 0)
        self.forget()
        if error is not None:
            self._outgoing.close()
        elif self._incoming.waiting:  # Linux sends a reset if a socket is closed with unread data
            self._refuse()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def crash(self, rng: random.Random, *, power_loss: bool) -> None:
        """End without protocol callbacks. After a kill the kernel closes or resets the connection;
        after a power loss the peer learns nothing."""
        self._closing = True
        if self._gone:
            return
        self._gone = True
        if power_loss:
            self._outgoing.close()
        elif rng.random() < 0.5:
            self._send_reset()
        else:
            self._outgoing.drop(keep=KERNEL_BUFFER_BYTES)
            self._outgoing.push_end()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        if self._protocol is None:
            raise RuntimeError("the connection is not established yet")
        return self._protocol

    @property
    def gone(self) -> bool:
        return self._gone
