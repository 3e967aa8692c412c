"""Samples of the server, the event loop and the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.errors import ErrorCode
from penstock.metrics.catalogue import server as names
from penstock.metrics.reads import Reads
from penstock.metrics.samples import Samples
from penstock.metrics.turn import Turn
from penstock.protocol.apis import APIS
from penstock.server.loop_delay import LoopDelay
from penstock.server.state import ServerState

# Returns estimates of the memory of rooms in bytes.
RoomBytes = Callable[[], dict[str, int]]


class ServerSource:
    """`errors` are the error codes of APIs, by key, whose handlers count them."""

    def __init__(
        self,
        listeners: Iterable[str],
        state: ServerState,
        loop_delay: LoopDelay,
        rooms: RoomBytes,
        errors: Mapping[int, Mapping[int, int]],
    ) -> None:
        self._listeners = tuple(listeners)
        self._errors = errors
        self._state = state
        self._loop_delay = loop_delay
        self._rooms = rooms

    async def __call__(self, samples: Samples, turn: Turn) -> None:
        await self._add_requests(samples, turn)
        self._add_connections(samples)
        samples.add_histogram(names.LOOP_DELAY, self._loop_delay.histogram())
        samples.add(names.LOOP_DELAY_WORST, self._loop_delay.worst_ms / 1000)
        state = self._state
        rooms = {"server": state.memory.used + state.reserved_memory.used} | self._rooms()
        for room, size in rooms.items():
            samples.add(names.MEMORY, size, room)
        await turn.pause()

    async def _add_requests(self, samples: Samples, turn: Turn) -> None:
        samples.add(names.REQUESTS_WAITING, self._state.waiting)
        if self._state.requests is None:
            return
        add = samples.add
        for api in APIS:
            measures = self._state.requests.of(api.key)
            count = measures.count
            if not count:
                continue
            total = measures.total()
            add(names.REQUESTS, count, api.name)
            add(names.REQUEST_QUEUE_SECONDS, measures.queue_s, api.name)
            add(names.REQUEST_LOCAL_SECONDS, measures.local_s, api.name)
            add(names.REQUEST_REMOTE_SECONDS, measures.remote_s, api.name)
            samples.add_histogram(names.REQUEST_SECONDS, total, api.name)
            errors = self._errors.get(api.key, measures.errors)
            for code, number in errors.items():
                add(names.REQUEST_ERRORS, number, api.name, _error_name(code))
            await turn.pause()

    def _add_connections(self, samples: Samples) -> None:
        state, add = self._state, samples.add
        counters = state.counters
        by_listener = state.quotas.by_listener
        for listener in self._listeners:
            add(names.CONNECTIONS, by_listener.get(listener, 0), listener)
        add(names.CONNECTIONS_OPENED, counters.connections_opened)
        add(names.CONNECTIONS_REFUSED, state.quotas.refused)
        for reason, count in (
            ("idle", counters.connections_idle_closed),
            ("stalled", counters.connections_stalled),
            ("broken_request", counters.connections_broken),
            ("failed_handler", counters.handler_errors),
            ("memory", state.memory.evicted + state.reserved_memory.evicted),
        ):
            add(names.CONNECTIONS_CLOSED, count, reason)
        counts = state.authentications
        for outcome, count in (
            ("successful", counts.successful),
            ("failed", counts.failed),
            ("successful_again", counts.successful_again),
            ("failed_again", counts.failed_again),
        ):
            add(names.AUTHENTICATIONS, count, outcome)
        for quota in state.client_quotas.all:
            add(names.THROTTLED_REQUESTS, quota.counts.throttled, quota.key)
            add(names.THROTTLE_SECONDS, quota.counts.throttled_ms / 1000, quota.key)
        add(names.CONNECTION_PAUSES, counters.connection_pauses)
        add(names.NETWORK_RECEIVED, counters.bytes_in)
        add(names.NETWORK_SENT, counters.bytes_out)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class ProcessSource:
    """prometheus-client's `process_*` metrics: memory, CPU time, open files, start time."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def __call__(self, samples: Samples, _turn: Turn) -> None:
        # In a thread: listing the open files of a node with many takes milliseconds, and so does
        # the first import.
        for text in (await self._reads.results({"/proc": _process_page})).values():
            samples.add_text(text)


def _process_page() -> bytes:
    """Return the page of this process. It is empty where there is no /proc."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return generate_latest(registry)
