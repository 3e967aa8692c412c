"""What a request takes from the quotas of its client, and the throttle time of its response.

Bytes of records that are fetched, and partitions that are created and deleted, are taken by their
handlers. The time of a request is that of the event loop: a client with request_percentage=50 may
use half of it. Kafka counts the time of each of its threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from penstock.handlers.context import RequestContext
from penstock.protocol.schema import changed
from penstock.security.quotas.client_quotas import ClientQuotas

_PRODUCE = 0
# Requests of brokers and controllers to each other, which no quota applies to: WriteTxnMarkers, the
# quorum's, AlterPartition, Envelope (its node has taken the request of the client), FetchSnapshot,
# registrations and heartbeats, AllocateProducerIds, AssignReplicasToDirs, UpdateRaftVoter. Fetches
# of followers are known by their connection.
_EXEMPT = frozenset({27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})


def charge_request(
    quotas: ClientQuotas,
    context: RequestContext,
    size: int,
    began: float,
    now: float,
    *,
    answers: bool,
) -> int:
    """Record a request of so many bytes, whose handler ran from `began` until `now`. Return the
    throttle time in milliseconds. As in Kafka, the time of a request without a response, a Produce
    with acks=0, is not recorded."""
    connection = context.connection
    if connection.is_follower or (context.api_key in _EXEMPT and not connection.is_refused_node):
        return 0
    authentication = connection.authentication
    if authentication is not None and not authentication.session.is_complete:
        return 0
    user, client_id, now_ms = connection.principal.name, context.client_id or "", int(now * 1000)
    throttle_ms = 0
    if context.api_key == _PRODUCE and quotas.produce.is_set:
        throttle_ms = quotas.produce.record(user, client_id, size, now_ms)
    if quotas.request.is_set and answers:
        percentage = (now - began) * 100
        throttle_ms = max(throttle_ms, quotas.request.record(user, client_id, percentage, now_ms))
    return throttle_ms


def with_throttle(response: Any, throttle_ms: int) -> Any:
    """Return a response with another throttle time."""
    return changed(response, throttle_time_ms=throttle_ms)


class Timed:
    """An awaitable that counts the time that its turns take of the event loop."""

    __slots__ = ("_awaitable", "_monotonic", "used_s")

    def __init__(self, awaitable: Awaitable[Any], monotonic: Callable[[], float]) -> None:
        self._awaitable = awaitable
        self._monotonic = monotonic
        self.used_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._awaitable.__await__()
        error: BaseException | None = None
        while True:
            began = self._monotonic()
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            finally:
                self.used_s += self._monotonic() - began
            try:
                yield waits_for
                error = None
            except BaseException as thrown:  # noqa: BLE001 - the awaitable gets it
                error = thrown
