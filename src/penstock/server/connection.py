"""One connection: frames in, requests to handlers in their order, answers out in the same order.

Laws:
- The synchronous part of a handler runs before the next frame is looked at, and before the receive buffer is used again.
- What is answered at once, with nothing before it, is written at once: no task, no future, no queue.
- Every awaitable of a handler belongs to its connection, and is cancelled when the connection is lost.
- A frame is taken only while the peer reads and what is in flight is below its bounds; otherwise reading is paused.
- A peer that breaks the protocol, and a handler that raises, end the connection with a reason in the log. A broken invariant ends the node.

It must never know what a request means.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, cast

from penstock.errors import InvariantBroken, ProtocolError
from penstock.limits import CLOSE_GRACE_S, MAX_REQUESTS_A_TURN
from penstock.protocol.framing import frame_response
from penstock.protocol.schema import Records
from penstock.server.answers import Answers, Slot
from penstock.server.bounds import Bounds
from penstock.server.context import Origin
from penstock.server.dispatch import describe
from penstock.server.receive import ReceiveBuffer
from penstock.server.state import ServerState
from penstock.server.writer import ShortRange, Writer

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    _transport: asyncio.Transport
    _writer: Writer
    _origin: Origin

    def __init__(self, state: ServerState, listener_name: str) -> None:
        self._state = state
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
        self._unsent = 0
        self._turn: asyncio.Handle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None

    # Coming and going

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = Writer(self._transport)
        self._origin = _origin(self._transport, self._listener_name)
        if not self._state.admit(self):
            self._closed = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if exc is not None:
            log.debug("lost the connection from %s: %s", self._origin.peer, exc)
        self._let_go()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._state.forget(self)

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """What was written still leaves, within a bound; everything else is dropped."""
        if self._closed:
            return
        self._closed = True
        log.log(level, "closed the connection from %s on %s: %s", self._origin.peer, self._origin.listener_name, reason)
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
        """Takes no more requests, and closes when the answers under way have left. What still comes is read and dropped: closing with
        unread bytes would reset the connection, and the peer could lose the answers."""
        self._draining = True
        self._buffer.discard()
        self._go_on()

    def _let_go(self) -> None:
        self._answers.cancel()
        self._writer.drop()
        self._buffer.discard()
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
        except (OSError, ShortRange) as error:
            self.close(f"an answer could not be read from its file: {error}", logging.ERROR)
        finally:
            self._advancing = False
        if self._draining and not self._answers and not self._writer.blocked:
            self.close("the server stops", logging.DEBUG)
        self._set_reading()

    def _take_frames(self) -> None:
        for _ in range(MAX_REQUESTS_A_TURN):
            if not self._may_take():
                return
            frame = self._buffer.next_frame()
            if frame is None:
                return
            self._take(frame)
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
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

    def _set_reading(self) -> None:
        wanted = self._draining or (self._turn is None and self._may_take())
        if wanted != self._reading and not self._closed and not self._transport.is_closing():
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # Handling

    def _take(self, frame: memoryview) -> None:
        self._state.counters.requests += 1
        try:
            context, result = self._state.dispatch.run(frame, self._origin, self._active)
            if result is None:
                return None
            if hasattr(result, "__await__"):
                return self._wait(self._answers.add(context, len(frame)), result)
            parts = frame_response(result, context.version, context.correlation_id)
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("a handler failed")
            return self._handler_failed(error)
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
            parts = [] if response is None else frame_response(response, context.version, context.correlation_id)
        except asyncio.CancelledError:
            return self.close(f"a handler was cancelled {describe(context)}")
        except Exception as error:
            log.exception("a handler failed %s", describe(context))
            return self._handler_failed(error)
        except InvariantBroken as error:
            return self._state.fail(error)
        if not self._closed:
            self._answers.fill(slot, parts)
            self._go_on()
        return None

    def _handler_failed(self, error: Exception) -> None:
        """A handler may raise nothing: what a client is to know is in its response."""
        self._state.counters.handler_errors += 1
        self.close(f"a handler failed: {error!r}", logging.ERROR)

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
            self._set_reading()

    def resume_writing(self) -> None:
        self._active = self._loop.time()
        if self._closed:
            return
        try:
            self._writer.resume()
        except (OSError, ShortRange) as error:
            self.close(f"an answer could not be read from its file: {error}", logging.ERROR)
        self._go_on()

    # Looking after

    def check(self, now: float) -> None:
        """Called from time to time: gives back memory, and ends what is idle. A connection that waits for a handler is not idle, unless
        it does not read what it was sent; and one that has not read a byte for so long is idle however much it sends."""
        self._buffer.trim()
        unsent = self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._active = unsent, now
        idle = self._bounds.max_idle_s
        if idle is None or self._closed or now - self._active < idle:
            return
        if self._writer.blocked:
            self.close(f"it has not read its answers for {idle:g} s (connections.max.idle.ms)")
            self._transport.abort()
        elif not self._answers:
            self._state.counters.connections_idle_closed += 1
            self.close(f"idle for {idle:g} s (connections.max.idle.ms)", logging.INFO)


def _origin(transport: asyncio.Transport, listener_name: str) -> Origin:
    # A peer that is gone already has no name any more.
    local = transport.get_extra_info("sockname") or ("", 0)
    peer = transport.get_extra_info("peername") or ("unknown", 0)
    return Origin(listener_name, str(local[0]), int(local[1]), f"{peer[0]}:{peer[1]}")
