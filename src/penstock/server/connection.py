"""One connection: frames in, requests to handlers in their order, answers out in the same order.

Laws:
- The synchronous part of a handler runs before the next frame is looked at, and before the receive
  buffer is used again.
- What is answered at once, with nothing before it, is written at once: no task, no future, no
  queue.
- Every awaitable of a handler belongs to its connection, and is cancelled when the connection is
  lost.
- A frame is taken only while the peer reads and what is in flight is below its bounds; otherwise
  reading is paused, as it is while the memory of all connections together is short.
- A peer that breaks the protocol, and a handler that raises, end the connection with a reason in
  the log. A broken invariant ends the node.

It must never know what a request means.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, cast

from penstock.errors import InvariantBroken, KafkaError, ProtocolError
from penstock.limits import CLOSE_GRACE_S, MAX_REQUESTS_A_TURN, READ_BYTES_A_TURN
from penstock.protocol.framing import frame_response
from penstock.protocol.schema import Records
from penstock.server.accepted import origin_of, set_buffers
from penstock.server.answers import Answers, Slot
from penstock.server.bounds import Bounds
from penstock.server.context import Origin
from penstock.server.dispatch import Dispatch, describe
from penstock.server.receive import ReceiveBuffer
from penstock.server.state import ServerState
from penstock.server.writer import Writer

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    _transport: asyncio.Transport
    _writer: Writer
    _origin: Origin

    def __init__(self, state: ServerState, dispatch: Dispatch, listener_name: str) -> None:
        self._state = state
        self._dispatch = dispatch
        self._bounds: Bounds = state.bounds
        self._listener_name = listener_name
        self._loop = asyncio.get_running_loop()
        self._buffer = ReceiveBuffer(state.shared_buffer, state.bounds.max_request_bytes)
        self._answers = Answers()
        self._reading = True
        self._advancing = False
        self._draining = False
        self._closed = False
        self._active = self._loop.time()
        self._left = 0
        self._read_bytes = 0
        self.memory_held = 0
        self._turn: asyncio.Handle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None

    # Coming and going

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = Writer(
            self._transport, self._state.offload, self._writer_woke, self._cannot_send
        )
        set_buffers(self._transport, self._bounds)
        self._origin = origin_of(self._transport, self._listener_name, self._active)
        if not self._state.admit(self):
            self._closed = True
            self._transport.abort()
        elif self._state.memory.short:
            self._loop.call_soon(self.set_reading)  # the transport begins to read after this call

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if exc is not None:
            log.debug("lost the connection from %s: %s", self._origin.peer, exc)
        self._let_go()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._state.forget(self)
        self._origin.visit.lost()

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """What was written still leaves, within a bound; everything else is dropped."""
        if self._closed:
            return
        self._closed = True
        log.log(
            level,
            "closed the connection from %s on %s: %s",
            self._origin.peer,
            self._origin.listener_name,
            reason,
        )
        self._writer.flush()
        self._let_go()
        self._abort_timer = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)
        self._transport.close()

    def abort(self) -> None:
        """At once: nothing more leaves."""
        self._closed = True
        self._let_go()
        self._transport.abort()

    def drain(self) -> None:
        """Takes no more requests, and closes when the answers under way have left. What still comes
        is read and dropped: closing with unread bytes would reset the connection, and the peer
        could lose the answers."""
        self._draining = True
        self._buffer.discard()
        self._go_on()

    def _let_go(self) -> None:
        self._answers.cancel()
        self._writer.drop()
        self._buffer.discard()
        self._count_memory()
        self._state.memory.forget(self)
        if self._turn is not None:
            self._turn.cancel()

    # Receiving

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._active = self._loop.time()
        self._state.counters.bytes_in += nbytes
        if self._draining or self._closed:
            return
        self._buffer.received(nbytes)
        self._read_bytes += nbytes
        if (
            self._read_bytes >= READ_BYTES_A_TURN
        ):  # uvloop would read up to 32 times before it looks at anyone else
            self._end_turn()
        self._go_on()

    def _go_on(self) -> None:
        """Does all that can be done now: sends answers, takes requests, and reads on or not."""
        if self._advancing or self._closed:
            return
        self._advancing = True
        try:
            self._flush()
            self._take_frames()
            self._buffer.settle()
            self._writer.flush()
        except ProtocolError as error:
            self._state.counters.connections_broken += 1
            self.close(str(error))
        finally:
            self._advancing = False
        if self._draining and not self._answers and not self._writer.blocked:
            self.close("the server stops", logging.DEBUG)
        self._count_memory()
        self.set_reading()

    def _take_frames(self) -> None:
        for _ in range(MAX_REQUESTS_A_TURN):
            if not self._may_take():
                return
            frame = self._buffer.next_frame()
            if frame is None:
                return
            self._take(frame)
        self._end_turn()

    def _end_turn(self) -> None:
        """Nothing more is read before the others had their turn."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn, self._read_bytes = None, 0
        self._go_on()

    def _may_take(self) -> bool:
        answers, bounds = self._answers, self._bounds
        return not (
            self._closed
            or self._draining
            or self._writer.blocked
            or len(answers) >= bounds.max_inflight_requests
            or answers.bytes >= bounds.max_inflight_bytes
        )

    def set_reading(self) -> None:
        """Reads on or not, as things are now."""
        wanted = self._may_take()
        if self._state.memory.short:
            wanted = self._state.memory.may_read(self, half=wanted and self._buffer.held > 0)
        wanted = (wanted and self._turn is None) or self._draining
        if wanted != self._reading and not self._closed and not self._transport.is_closing():
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # Handling

    def _take(self, frame: memoryview) -> None:
        self._state.counters.requests += 1
        try:
            context, result = self._dispatch.run(frame, self._origin, self._active)
            if result is None:
                return None
            if hasattr(result, "__await__"):
                return self._wait(self._answers.add(context, len(frame)), result)
            parts = frame_response(result, context.version, context.correlation_id)
        except ProtocolError:
            raise
        except KafkaError as error:
            return self._handler_failed(" ".join((str(error), *error.__notes__)))
        except Exception as error:
            log.exception("a handler failed")
            return self._handler_failed(repr(error))
        except InvariantBroken as error:
            return self._state.fail(error)
        if self._answers:
            return self._answers.fill(self._answers.add(context, 0), parts)
        return self._send(parts)

    def _wait(self, slot: Slot, awaitable: Any) -> None:
        slot.future = future = asyncio.ensure_future(awaitable)
        self._state.waiting += 1
        future.add_done_callback(partial(self._answered, slot))

    def _answered(self, slot: Slot, future: asyncio.Future[Any]) -> None:
        self._state.waited()
        context = slot.context
        try:
            response = future.result()
            parts = (
                []
                if response is None
                else frame_response(response, context.version, context.correlation_id)
            )
        except asyncio.CancelledError:
            return self.close(f"a handler was cancelled {describe(context)}")
        except KafkaError as error:
            return self._handler_failed(f"{error} {describe(context)}")
        except Exception as error:
            log.exception("a handler failed %s", describe(context))
            return self._handler_failed(repr(error))
        except InvariantBroken as error:
            return self._state.fail(error)
        if not self._closed:
            self._answers.fill(slot, parts)
            self._go_on()
        return None

    def _handler_failed(self, what: str) -> None:
        """A handler may raise nothing: what a client is to know is in its response."""
        self._state.counters.handler_errors += 1
        self.close(f"a handler failed: {what}", logging.ERROR)

    # Sending

    def _flush(self) -> None:
        while not self._writer.blocked and (parts := self._answers.next_ready()) is not None:
            if parts:
                self._send(parts)

    def _send(self, parts: list[Records]) -> None:
        self._state.counters.responses += 1
        self._state.counters.bytes_out += sum(map(len, parts))
        self._writer.send(parts)

    def pause_writing(self) -> None:
        self._writer.pause()
        if not self._advancing:
            self.set_reading()

    def resume_writing(self) -> None:
        self._writer.resume()
        self._writer_woke()

    def _writer_woke(self) -> None:
        self._active = self._loop.time()
        self._writer.go_on()
        self._go_on()

    def _cannot_send(self, error: Exception) -> None:
        if isinstance(error, ConnectionError):  # the peer is gone: the transport will say so too
            self.abort()
        else:
            self.close(f"an answer could not be read from its file: {error}", logging.ERROR)

    # Looking after

    def trim(self) -> None:
        self._buffer.trim()
        self._count_memory()

    def _count_memory(self) -> None:
        if self._state.memory.short:
            self._buffer.trim()
        self._state.memory.hold(self, self._answers.waiting_bytes + self._buffer.own_bytes)

    def check(self, now: float) -> None:
        """Called from time to time: gives back memory, and ends what is idle. A connection that
        waits for a handler is not idle, unless it does not read what it was sent; and one that has
        not read a byte for so long is idle however much it sends."""
        self.trim()
        left = self._writer.written - self._transport.get_write_buffer_size()
        if left != self._left:
            self._left, self._active = left, now
        idle = self._bounds.max_idle_s
        if idle is None or self._closed or now - self._active < idle:
            return
        if self._writer.blocked:
            self.close(f"it has not read its answers for {idle:g} s (connections.max.idle.ms)")
            self._transport.abort()
        elif not self._answers:
            self._state.counters.connections_idle_closed += 1
            self.close(f"idle for {idle:g} s (connections.max.idle.ms)", logging.INFO)
