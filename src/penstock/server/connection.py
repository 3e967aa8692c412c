"""One connection: frames in, requests to handlers in their order, responses out in the same order.

Rules:
- The synchronous part of a handler runs before the next frame is looked at, and before the receive
  buffer is reused.
- A response that is ready immediately, with none before it, is written immediately: no task, no
  future, no queue.
- The awaitables of handlers belong to their connection, and are cancelled when it is lost.
- A frame is taken only while the peer reads its responses, the requests in flight are below their
  bounds, no earlier response is exclusive, and the client is not throttled. Otherwise reading is
  paused, as it is for large requests while the memory of all connections together is short.
- Requests are taken for TURN_S; then the other connections have their turn.
- A peer that breaks the protocol, and a handler that raises, end the connection with a reason in
  the log. A broken invariant stops the node.
- Every callback of the event loop runs inside `with actions:`, so that what it wakes on this or
  other connections is answered before it returns.

A connection does not know what a request means.
"""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import InvariantBroken, KafkaError, ProtocolError
from penstock.handlers.context import ConnectionHandle, Exclusive, RequestContext
from penstock.limits import (
    CLOSE_GRACE_S,
    READ_BYTES_A_TURN,
    SMALL_HELD_BYTES,
    TLS_BUFFER_BYTES,
    TURN_S,
)
from penstock.node.delayed import DelayedResponse
from penstock.protocol.framing import frame_response
from penstock.protocol.schema import Records
from penstock.server.dispatch import Dispatching, Origin, describe
from penstock.server.progress import Progress
from penstock.server.receive import ReceiveBuffer
from penstock.server.request_measures import FETCH, MAX_TIMES, RequestMeasures
from penstock.server.responses import ResponseQueue, ResponseSlot
from penstock.server.sockets import set_buffers
from penstock.server.state import Bounds, ServerState
from penstock.server.throttling import Timed, charge_request, with_throttle
from penstock.server.tls.opening import TlsOpening, drop_records, read_ahead_bytes
from penstock.server.writer import Writer

if TYPE_CHECKING:
    from penstock.server.sasl import SaslListener

log = logging.getLogger(__name__)

# The protocol of transports whose connections are lost.
_LOST = asyncio.BufferedProtocol()


class Connection(asyncio.BufferedProtocol):
    _transport: asyncio.Transport
    _writer: Writer
    _progress: Progress
    _origin: Origin

    def __init__(
        self,
        state: ServerState,
        dispatch: Dispatching,
        listener_name: str,
        sasl: SaslListener | None = None,
        tls: TlsOpening | None = None,
    ) -> None:
        self._state = state
        self._actions = state.actions
        self._dispatch = dispatch
        self._bounds: Bounds = state.bounds
        self.listener_name = listener_name
        self.address = ""
        self._memory = state.memory_of(listener_name)
        self._monotonic = state.clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._sasl = sasl
        self._tls = tls
        self.is_encrypted = tls is not None
        self._buffer = ReceiveBuffer(
            state.shared_buffer,
            state.bounds.max_request_bytes if sasl is None else sasl.max_receive_bytes,
        )
        self._responses = ResponseQueue()
        self._reading = True
        self._advancing = False
        self._draining = False
        self._drain_reason, self._drain_level = "the server stops", logging.DEBUG
        self._closed = False
        # An exclusive response is not ready: no request is taken before it is.
        self._exclusive: ResponseSlot | None = None
        self._active = self._loop.time()
        # Monotonic times, for metrics: of the arrival of the frames in the buffer, and of the
        # moment when the current one was taken. Frames that waited for a turn have arrived earlier.
        self._requests = state.requests
        self._quotas = state.client_quotas
        self._arrived = self._began = 0.0
        self._is_late = False
        self._taken_bytes = 0
        self._read_bytes = 0
        self.memory_held = 0
        self._turn: asyncio.Handle | None = None
        # While the client is throttled: when that ends, on the event loop's clock.
        self._muted_until = 0.0
        self._unmute: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None

    # Opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer = Writer(
            self._transport,
            self._state.offload,
            self._writer_ready,
            self._cannot_send,
            self._state.watched_sockets,
        )
        bounds = self._bounds
        set_buffers(self._transport, bounds.send_buffer_bytes, bounds.receive_buffer_bytes)
        self._progress = Progress(self._transport, bounds.receive_buffer_bytes)
        self._origin = _origin(self._transport, self.listener_name, self._active)
        self.address = self._origin.peer.rpartition(":")[0]
        if self._tls is not None:
            opening, self._tls = self._tls, None
            if not opening.opened(self._transport, self._origin.connection, self._end_tls_turn):
                self._closed = True
                self._transport.abort()
                return
        if self._sasl is not None:
            self._origin.connection.authentication = self._sasl.authentication(
                self._authenticated, self._refused, self._send_token
            )
        if not self._state.admit(self):
            self._closed = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        with self._actions:
            self._closed = True
            if exc is not None:
                log.debug("lost the connection from %s: %s", self._origin.peer, exc)
            self._release()
            if self._abort_timer is not None:
                self._abort_timer.cancel()
            self._state.forget(self)
            handle = self._origin.connection
            handle.lost()
            # The connection is freed now and not by a full garbage collection, which is rare: its
            # authentication and the transport of TLS refer to it.
            handle.authentication = None
            if self.is_encrypted:
                self._transport.set_protocol(_LOST)

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """Close after what was written has left, within a time limit; drop everything else."""
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
        self._release()
        self._abort_timer = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)
        self._transport.close()

    def evict(self, reason: str) -> None:
        """Close without sending anything more. Logged by `Memory`, which evicts many at once."""
        self.close(reason, logging.DEBUG)
        self._transport.abort()

    def abort(self) -> None:
        """Close without sending anything more."""
        self._closed = True
        self._release()
        self._transport.abort()

    def drain(self) -> None:
        """Take no more requests, and close when the pending responses have left.

        Bytes that still arrive are read and dropped: closing with unread bytes would reset the
        connection, and the peer could lose responses.
        """
        self._draining = True
        self._buffer.discard()
        self._advance()

    def _release(self) -> None:
        if self.is_encrypted:
            drop_records(self._transport)
        self._responses.cancel()
        self._writer.drop()
        self._buffer.discard()
        self._count_memory()
        self._memory.forget(self)
        for timer in (self._turn, self._unmute):
            if timer is not None:
                timer.cancel()

    # Authentication, on a SASL listener

    def _authenticated(self) -> None:
        self._buffer.allow(self._bounds.max_request_bytes)

    def _refused(self, reason: str) -> None:
        """Close the connection when the response to its authentication has left."""
        level = self._state.refused_level(self._loop.time())
        self._drain_reason, self._drain_level = reason, level
        origin = self._origin
        self._state.audit_refusal(origin.peer, origin.listener_name, reason, self._loop.time())
        self.drain()

    def _broken_level(self) -> int:
        """Return the log level of a broken protocol. Strangers could fill the log."""
        authentication = self._origin.connection.authentication
        if authentication is None or authentication.session.is_complete:
            return logging.WARNING
        return self._state.refused_level(self._loop.time())

    def _send_token(self, token: bytes) -> None:
        """Send a token without a Kafka header, after SaslHandshake v0."""
        self._send([len(token).to_bytes(4), token])

    # Receiving

    def get_buffer(self, _sizehint: int) -> memoryview:
        if self._memory.short:
            return self._buffer.room(self._memory.growth_limit(self))
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._active = self._loop.time()
        self._state.counters.bytes_in += nbytes
        if self._draining or self._closed:
            return
        self._buffer.received(nbytes)
        self._read_bytes += nbytes
        if self._read_bytes >= READ_BYTES_A_TURN:
            # uvloop reads up to 32 times before it serves another connection.
            self._end_turn()
        self._advance()

    def _advance(self) -> None:
        """Do all that can be done now: send responses, take requests, pause or resume reading."""
        if self._advancing or self._closed:
            return
        with self._actions:
            self._advancing = True
            try:
                if self._responses.slots:
                    self._send_ready()
                self._take_frames()
                if self._responses.slots:
                    self._send_ready()
                self._buffer.settle()
                self._writer.flush()
            except ProtocolError as error:
                self._state.counters.connections_broken += 1
                self.close(str(error), self._broken_level())
            finally:
                self._advancing = False
            if self._draining and not self._responses.slots and not self._writer.blocked:
                self.close(self._drain_reason, self._drain_level)
            if (
                self.memory_held
                or self._responses.slots
                or not self._buffer.is_empty
                or self._writer.blocked
            ):
                self._count_memory()
            self.set_reading()

    def _take_frames(self) -> None:
        buffer = self._buffer
        if buffer.is_empty:
            return
        now = self._monotonic()
        turn_end = now + TURN_S
        if not self._is_late:
            self._arrived = now
        self._is_late = True
        while self._may_take():
            frame = buffer.next_frame()
            if frame is None:
                self._is_late = False
                self._progress.begin_frame(self._active)
                return
            self._progress.frame_began = None
            self._began = now
            self._take(frame)
            if self._buffer.is_empty:
                self._is_late = False
                return
            now = self._monotonic()
            if now >= turn_end:
                self._end_turn()
                return

    def _end_turn(self) -> None:
        """Read nothing more before the other connections had their turn."""
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def _end_tls_turn(self) -> None:
        self._end_turn()
        # Resuming makes the transport decrypt what has arrived.
        self.set_reading()

    def _next_turn(self) -> None:
        self._turn, self._read_bytes = None, 0
        self._advance()

    def _may_take(self) -> bool:
        responses, bounds = self._responses, self._bounds
        return not (
            self._closed
            or self._draining
            or self._exclusive is not None
            or self._unmute is not None
            or self._writer.blocked
            or len(responses.slots) >= bounds.max_inflight_requests
            or responses.bytes >= bounds.max_inflight_bytes
            or (self._memory.short and responses.held_bytes > SMALL_HELD_BYTES)
        )

    def set_reading(self) -> None:
        """Pause or resume reading."""
        reads, memory, buffer = self._may_take(), self._memory, self._buffer
        if memory.short and reads:
            full = buffer.is_full(memory.growth_limit(self))
            reads = memory.may_read(self, partial=buffer.held > 0, full=full)
        elif memory.short:
            memory.forget(self)
        reads = (reads and self._turn is None) or self._draining
        if reads == self._reading or self._closed or self._transport.is_closing():
            return
        self._reading = reads
        if reads:
            self._progress.resume(self._loop.time())
            self._transport.resume_reading()
        else:
            self._state.counters.connection_pauses += 1
            self._progress.pause(self._loop.time())
            self._transport.pause_reading()

    # Handling

    def _take(self, frame: memoryview) -> None:
        self._state.counters.requests += 1
        try:
            context, result = self._dispatch.run(frame, self._origin, self._active)
            if self._quotas.is_set:
                result = self._charge(context, result, len(frame))
            if result is None:
                if self._requests is not None:
                    self._count(self._requests, context.api_key, None)
                return None
            if isinstance(result, DelayedResponse):
                held = self._dispatch.decoded_bytes(context, len(frame))
                slot = self._responses.add(context, len(frame), held)
                slot.times = self._times()
                slot.pending = result
                self._state.waiting += 1
                return result.on_done(partial(self._handled, slot))
            if hasattr(result, "__await__"):
                held = self._dispatch.decoded_bytes(context, len(frame)) or len(frame)
                slot = self._responses.add(context, len(frame), held)
                slot.times = self._times()
                if isinstance(result, Exclusive):
                    self._exclusive, result = slot, result.response
                return self._wait(slot, result)
            parts = frame_response(result, context.version, context.correlation_id)
            if self._requests is not None:
                self._count(self._requests, context.api_key, result)
        except ProtocolError:
            raise
        except KafkaError as error:
            return self._handler_failed(" ".join((str(error), *error.__notes__)))
        except Exception as error:
            log.exception("a handler failed")
            return self._handler_failed(repr(error))
        except InvariantBroken as error:
            return self._state.fail(error)
        if self._responses.slots:
            return self._responses.fill(self._responses.add(context, 0), parts)
        return self._send(parts)

    def _count(self, requests: RequestMeasures, api_key: int, response: object) -> None:
        """Count a request whose response is ready when its handler returns."""
        times = requests.apis[api_key].times
        times += (self._arrived, self._began, self._monotonic())
        if api_key > FETCH or len(times) >= MAX_TIMES:
            requests.settle(api_key, response)

    def _times(self) -> tuple[float, float, float]:
        return self._arrived, self._began, self._monotonic()

    def _wait(self, slot: ResponseSlot, awaitable: Any) -> None:
        if self._quotas.request.is_set:
            slot.timed = awaitable = Timed(awaitable, self._monotonic)
        slot.pending = future = asyncio.ensure_future(awaitable)
        self._state.waiting += 1
        future.add_done_callback(partial(self._handled, slot))

    def _handled(
        self, slot: ResponseSlot, done: asyncio.Future[Any] | DelayedResponse[Any]
    ) -> None:
        """A handler that waited has ended."""
        self._state.handler_done()
        if self._exclusive is slot:
            self._exclusive = None
        context = slot.context
        try:
            response = done.result()
            if self._quotas.is_set:
                if slot.timed is not None:
                    now = self._monotonic()
                    self._mute(
                        charge_request(
                            self._quotas, context, 0, now - slot.timed.used_s, now, answers=True
                        )
                    )
                response = self._told(response)
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
        if self._requests is not None:
            self._requests.answered_later(context.api_key, response, *slot.times)
        if self._closed:
            return None
        self._responses.fill(slot, parts)
        if self._draining or not self._reading or self._buffer.held or self._advancing:
            return self._advance()
        # As `_advance` does, without a look for requests. Nothing here adds actions.
        self._send_ready()
        self._writer.flush()
        if self._responses.slots or self._writer.blocked or self.memory_held:
            self._count_memory()
            self.set_reading()
        return None

    def _handler_failed(self, reason: str) -> None:
        """Close the connection: errors that a client may see are in responses, not raised."""
        self._state.counters.handler_errors += 1
        self.close(f"a handler failed: {reason}", logging.ERROR)

    # Throttling (KIP-219): responses leave at once, and then no request is taken for some time

    def _charge(self, context: RequestContext, result: object, size: int) -> object:
        """Take a request from the quotas of its client."""
        now = self._monotonic()
        self._mute(
            charge_request(
                self._quotas, context, size, self._began, now, answers=result is not None
            )
        )
        # A response that is not ready gets its throttle time later.
        return result if hasattr(result, "__await__") else self._told(result)

    def _told(self, response: Any) -> Any:
        """Mute the connection for the time that a handler has put into its response, and return the
        response with the time that it is muted for."""
        throttle_ms = getattr(response, "throttle_time_ms", None)
        if throttle_ms is None:
            return response
        self._mute(throttle_ms)
        if self._unmute is None:
            return response
        left_ms = round((self._muted_until - self._loop.time()) * 1000)
        return with_throttle(response, left_ms) if left_ms > throttle_ms else response

    def _mute(self, throttle_ms: int) -> None:
        if throttle_ms <= 0 or self._closed:
            return
        until = self._loop.time() + throttle_ms / 1000
        if until <= self._muted_until:
            return
        self._muted_until = until
        if self._unmute is not None:
            self._unmute.cancel()
        self._unmute = self._loop.call_at(until, self._end_mute)
        if not self._advancing:
            self.set_reading()

    def _end_mute(self) -> None:
        self._unmute = None
        self._advance()

    # Sending

    def _send_ready(self) -> None:
        while not self._writer.blocked and (parts := self._responses.pop_ready()) is not None:
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
        self._writer_ready()

    def _writer_ready(self) -> None:
        written = self._writer.written
        self._writer.resume_parts()
        if self._writer.written != written:
            self._active = self._loop.time()
        self._advance()

    def _cannot_send(self, error: Exception) -> None:
        if isinstance(error, ConnectionError):
            # The peer is gone; the transport reports it too.
            self.abort()
        else:
            self.close(f"cannot read a response from its file: {error}", logging.ERROR)

    # Housekeeping

    def trim(self) -> None:
        self._buffer.trim()
        self._count_memory()

    def _count_memory(self) -> None:
        memory, held = self._memory, 0
        if not self._closed:
            if memory.short:
                self._buffer.trim()
            held = self._responses.held_bytes
            if held <= SMALL_HELD_BYTES:
                held = 0
            held += self._buffer.own_bytes
            if self.is_encrypted:
                # The bytes of a partial request have passed through the transport's own buffer.
                held += min(self._buffer.own_bytes, TLS_BUFFER_BYTES)
                if not self._reading:
                    held += read_ahead_bytes(self._transport)
            if self._writer.blocked:
                held += self._writer.held_bytes
        memory.hold(self, held)

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is in progress."""
        return not self._responses.slots and not self._writer.blocked and self._buffer.is_empty

    @property
    def last_active(self) -> float:
        return self._active

    def rate(self, now: float) -> float:
        progress, buffer = self._progress, self._buffer
        if self._writer.waits_for_peer:
            return progress.response_rate(now, self._writer.written)
        if self._unmute is not None and not buffer.is_empty:
            # The client is over its quota, and is not read for as long as it is muted.
            return 0.0
        if progress.frame_began is None or buffer.is_empty:
            return math.inf
        return progress.request_rate(now, buffer.held, buffer.missing, reading=self._reading)

    def missing_bytes(self) -> int:
        return max(0, self._buffer.held + self._buffer.missing - self._buffer.own_bytes)

    def check(self, now: float) -> None:
        """Release memory, and close the connection if it is idle or its peer does not complete a
        request; called periodically.

        A connection that waits for a handler is not idle, unless its peer does not read. A peer
        that reads nothing for max_idle_s is idle, however much it sends.
        """
        self.trim()
        progress, held = self._progress, self._buffer.held
        taken_bytes = progress.taken(self._writer.written)
        if taken_bytes != self._taken_bytes:
            self._taken_bytes, self._active = taken_bytes, now
        if self._reading and not self._closed and progress.is_overdue(now, held):
            self._state.counters.connections_stalled += 1
            self.close(
                f"its peer sent only {held} bytes of a request in {progress.frame_age_s(now):.0f} "
                f"s. {self._state.counters.connections_stalled} such connections were closed since "
                "the start",
                self._state.stalled_level(now),
            )
            self._transport.abort()
        idle = self._bounds.max_idle_s
        if idle is None or self._closed or now - self._active < idle:
            return
        if self._writer.blocked:
            self.close(f"the peer read no responses for {idle:g} s (connections.max.idle.ms)")
            self._transport.abort()
        elif not self._responses.slots:
            self._state.counters.connections_idle_closed += 1
            self.close(f"idle for {idle:g} s (connections.max.idle.ms)", logging.INFO)


def _origin(transport: asyncio.Transport, listener_name: str, now: float) -> Origin:
    # A peer that has disconnected already has no address.
    local = transport.get_extra_info("sockname") or ("", 0)
    peer = transport.get_extra_info("peername") or ("unknown", 0)
    return Origin(
        listener_name, str(local[0]), int(local[1]), f"{peer[0]}:{peer[1]}", ConnectionHandle(now)
    )
