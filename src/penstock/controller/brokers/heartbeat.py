"""BrokerHeartbeat, and the sessions of brokers (Kafka's `BrokerHeartbeatManager`). PURE.

A broker is unfenced once it has applied its own registration. A broker that wants to shut down
first loses its leaderships. It may shut down when all other active brokers have applied that, so
that no client is directed to it any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from penstock.controller.brokers.directories import cordoned_directories, offline_directories
from penstock.controller.brokers.fencing import (
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
)
from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.partitions.leader_and_isr import has_leaderships
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

UNKNOWN_OFFSET = -1


class BrokerState(Enum):
    """The state that the controller assigns to a broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def broker_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    context: ControllerContext,
    heartbeats: HeartbeatTracker,
) -> ControllerResult[BrokerHeartbeatResponse]:
    """Decide on a heartbeat. Records the broker's metadata offset in `heartbeats`; the caller
    records the heartbeat itself when the decision is committed.

    Raises KafkaError STALE_BROKER_EPOCH for an earlier registration.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    state = _next_state(image, broker, request, heartbeats, is_caught_up=is_caught_up)
    transition = _transition(image, broker, state, context)
    after = _after(image, transition)
    offline = offline_directories(after, broker.id, request.offline_log_dirs, context)
    records = (
        *transition.records,
        *offline.records,
        *cordoned_directories(image, broker.id, request.cordoned_log_dirs),
    )
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        heartbeats.note_controlled_shutdown(broker.id, broker.epoch, image.offset + len(records))
    heartbeats.note_applied(broker.id, broker.epoch, request.current_metadata_offset)
    response = BrokerHeartbeatResponse(
        is_caught_up=is_caught_up,
        is_fenced=state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )
    warnings = transition.warnings + offline.warnings
    return ControllerResult(records, response, warnings, is_atomic=False)


def _next_state(
    image: MetadataImage,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
    heartbeats: HeartbeatTracker,
    *,
    is_caught_up: bool,
) -> BrokerState:
    if broker.fenced:
        return _state_when_fenced(request, is_caught_up=is_caught_up)
    shutdown_offset = heartbeats.controlled_shutdown_offset(broker.id, broker.epoch)
    if shutdown_offset is not None:
        return _state_in_controlled_shutdown(image, broker, heartbeats, shutdown_offset)
    if request.want_fence:
        return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
    if not request.want_shut_down:
        return BrokerState.UNFENCED
    return (
        BrokerState.CONTROLLED_SHUTDOWN
        if has_leaderships(image, broker.id)
        else BrokerState.SHUTDOWN_NOW
    )


def _state_when_fenced(request: BrokerHeartbeatRequest, *, is_caught_up: bool) -> BrokerState:
    if request.want_shut_down:
        return BrokerState.SHUTDOWN_NOW
    return BrokerState.UNFENCED if is_caught_up and not request.want_fence else BrokerState.FENCED


def _state_in_controlled_shutdown(
    image: MetadataImage, broker: BrokerImage, heartbeats: HeartbeatTracker, shutdown_offset: int
) -> BrokerState:
    """Shut down when the broker leads nothing and the other active brokers have applied that."""
    others = (
        other.id for other in image.brokers.values() if other.is_active and other.id != broker.id
    )
    lowest = heartbeats.lowest_applied(others)
    is_applied = lowest is None or lowest >= shutdown_offset
    return (
        BrokerState.SHUTDOWN_NOW
        if is_applied and not has_leaderships(image, broker.id)
        else BrokerState.CONTROLLED_SHUTDOWN
    )


def _transition(
    image: MetadataImage, broker: BrokerImage, state: BrokerState, context: ControllerContext
) -> ControllerResult[None]:
    if state is BrokerState.UNFENCED:
        return unfence_broker(image, broker.id, context)
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(image, broker.id, context)
    return fence_broker(image, broker.id, context)


def _after(image: MetadataImage, decision: ControllerResult[None]) -> MetadataImage:
    """Return the image after the decision: a second change of a partition builds on the first."""
    if not decision.records:
        return image
    return image.replay(decision.records, image.offset + len(decision.records))[0]


@dataclass(slots=True)
class _Session:
    epoch: int
    last_heartbeat: float


@dataclass(slots=True)
class _MetadataOffsets:
    epoch: int
    # The last offset that the broker has applied.
    applied: int = UNKNOWN_OFFSET
    # The offset at which all leaderships of the broker have moved; None unless it is in controlled
    # shutdown.
    controlled_shutdown: int | None = None


class HeartbeatTracker:
    """The sessions of the brokers, and how far they have applied the metadata.

    None of this is in the log. A new active controller starts with an empty tracker and gives every
    unfenced broker a whole session. Times are seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}
        self._offsets: dict[int, _MetadataOffsets] = {}

    def touch(self, broker_id: int, epoch: int, now: float) -> None:
        """Record a heartbeat. One of an earlier epoch is ignored."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch < epoch:
            self._sessions[broker_id] = _Session(epoch, now)
        elif session.epoch == epoch:
            session.last_heartbeat = now

    def forget(self, broker_id: int) -> None:
        """Remove a broker that is fenced or unregistered: it has no session."""
        self._sessions.pop(broker_id, None)
        self._offsets.pop(broker_id, None)

    def expired(self, now: float, session_timeout: float) -> list[int]:
        """Return the brokers whose session timed out, the longest silent first."""
        expired = [
            (session.last_heartbeat, broker_id)
            for broker_id, session in self._sessions.items()
            if session.last_heartbeat + session_timeout < now
        ]
        return [broker_id for _last, broker_id in sorted(expired)]

    def has_session(self, broker_id: int, now: float, session_timeout: float) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.last_heartbeat + session_timeout >= now

    def heard_since(self, broker_id: int, since: float) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.last_heartbeat > since

    # Controlled shutdown

    def note_applied(self, broker_id: int, epoch: int, offset: int) -> None:
        """Record that the broker has applied the metadata up to `offset`, as its heartbeats and
        fetches show."""
        offsets = self._of(broker_id, epoch)
        offsets.applied = max(offsets.applied, offset)

    def lowest_applied(self, broker_ids: Iterable[int]) -> int | None:
        """Return the lowest applied offset of these brokers; None if there are none."""
        return min(
            (
                self._offsets[broker_id].applied if broker_id in self._offsets else UNKNOWN_OFFSET
                for broker_id in broker_ids
            ),
            default=None,
        )

    def note_controlled_shutdown(self, broker_id: int, epoch: int, offset: int) -> None:
        """Record the offset at which the broker began its controlled shutdown; the first
        counts."""
        offsets = self._of(broker_id, epoch)
        if offsets.controlled_shutdown is None:
            offsets.controlled_shutdown = offset

    def controlled_shutdown_offset(self, broker_id: int, epoch: int) -> int | None:
        return self._of(broker_id, epoch).controlled_shutdown

    def _of(self, broker_id: int, epoch: int) -> _MetadataOffsets:
        """Return the entry of this epoch, not that of an earlier one. Callers have checked the
        epoch."""
        offsets = self._offsets.get(broker_id)
        if offsets is None or offsets.epoch != epoch:
            offsets = self._offsets[broker_id] = _MetadataOffsets(epoch)
        return offsets
