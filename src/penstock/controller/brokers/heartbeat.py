"""BrokerHeartbeat: a broker tells that it lives, what it wants, and which of its directories are
lost. PURE.

States and moves are Kafka's. A broker is let in once it has applied its own registration. One that
wants to go hands over what it leads and may go when everybody else has applied that: then no client
is sent to it any more.
"""

from __future__ import annotations

from enum import Enum

from penstock.controller.brokers.directories import cordoned_directories, offline_directories
from penstock.controller.brokers.fencing import (
    begin_controlled_shutdown,
    fence_broker,
    unfence_broker,
)
from penstock.controller.brokers.liveness import Heartbeats
from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.partitions.leadership import has_leaderships
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)


class BrokerState(Enum):
    """What a broker is told to be."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def broker_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    node: ControllerContext,
    heartbeats: Heartbeats,
) -> Decision[BrokerHeartbeatResponse]:
    """Notes in `heartbeats` how far the broker has come; that it lives the caller notes when the
    decision is committed.

    KafkaError STALE_BROKER_EPOCH for another life than the one that is registered.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    state = _next_state(image, broker, request, heartbeats, caught_up=caught_up)
    moves = _move(image, broker, state, node)
    after = _after(image, moves)
    lost = offline_directories(after, broker.id, request.offline_log_dirs, node)
    records = (
        *moves.records,
        *lost.records,
        *cordoned_directories(image, broker.id, request.cordoned_log_dirs),
    )
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        heartbeats.note_leaving(broker.id, broker.epoch, image.offset + len(records))
    heartbeats.note_applied(broker.id, broker.epoch, request.current_metadata_offset)
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(records, response, moves.notes + lost.notes)


def _next_state(
    image: MetadataImage,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
    heartbeats: Heartbeats,
    *,
    caught_up: bool,
) -> BrokerState:
    if broker.fenced:
        return _when_fenced(request, caught_up=caught_up)
    leaves_at = heartbeats.leaves_at(broker.id, broker.epoch)
    if leaves_at is not None:
        return _when_leaving(image, broker, heartbeats, leaves_at)
    if request.want_fence:
        return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
    if not request.want_shut_down:
        return BrokerState.UNFENCED
    return (
        BrokerState.CONTROLLED_SHUTDOWN
        if has_leaderships(image, broker.id)
        else BrokerState.SHUTDOWN_NOW
    )


def _when_fenced(request: BrokerHeartbeatRequest, *, caught_up: bool) -> BrokerState:
    if request.want_shut_down:
        return BrokerState.SHUTDOWN_NOW
    return BrokerState.UNFENCED if caught_up and not request.want_fence else BrokerState.FENCED


def _when_leaving(
    image: MetadataImage, broker: BrokerImage, heartbeats: Heartbeats, leaves_at: int
) -> BrokerState:
    """It may go when it leads nothing and all that stay know it."""
    staying = (one.id for one in image.brokers.values() if one.is_active and one.id != broker.id)
    lowest = heartbeats.lowest_applied(staying)
    known = lowest is None or lowest >= leaves_at
    return (
        BrokerState.SHUTDOWN_NOW
        if known and not has_leaderships(image, broker.id)
        else BrokerState.CONTROLLED_SHUTDOWN
    )


def _move(
    image: MetadataImage, broker: BrokerImage, state: BrokerState, node: ControllerContext
) -> Decision[None]:
    if state is BrokerState.UNFENCED:
        return unfence_broker(image, broker.id, node)
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(image, broker.id, node)
    return fence_broker(image, broker.id, node)


def _after(image: MetadataImage, decision: Decision[None]) -> MetadataImage:
    """So that a second change of one partition builds on the first."""
    if not decision.records:
        return image
    return image.replay(decision.records, image.offset + len(decision.records))[0]
