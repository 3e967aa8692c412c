"""BrokerHeartbeat: fencing, unfencing and controlled shutdown."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.brokers.heartbeat import HeartbeatTracker, broker_heartbeat
from penstock.controller.decision import ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, MetadataImage
from penstock.protocol.internal.metadata_nodes import BrokerRegistrationChangeRecord
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tests.controller.clusters import (
    after,
    broker,
    context,
    directory,
    partition,
    running,
    state_of,
    with_topic,
)

EPOCH = 101


def beat(
    image: MetadataImage,
    heartbeats: HeartbeatTracker | None = None,
    broker_id: int = 1,
    applied: int = 200,
    **wants: Any,
) -> ControllerResult[BrokerHeartbeatResponse]:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=broker_id + 100, current_metadata_offset=applied, **wants
    )
    return broker_heartbeat(image, request, context(), heartbeats or HeartbeatTracker())


def flags(decision: ControllerResult[BrokerHeartbeatResponse]) -> tuple[bool, bool, bool]:
    """Return is_caught_up, is_fenced and should_shut_down."""
    response = decision.response
    return response.is_caught_up, response.is_fenced, response.should_shut_down


def test_stale_epoch_is_refused() -> None:
    for request in (
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=100),
        BrokerHeartbeatRequest(broker_id=9, broker_epoch=EPOCH),
    ):
        with pytest.raises(KafkaError) as refused:
            broker_heartbeat(running(broker(1)), request, context(), HeartbeatTracker())
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_ordinary_heartbeat_writes_no_record() -> None:
    decision = beat(with_topic(running(broker(1)), partition(1)))
    assert (decision.records, flags(decision)) == ((), (True, False, False))


def test_broker_is_unfenced_once_it_has_applied_its_registration() -> None:
    image = running(broker(1, fenced=True))
    behind = beat(image, applied=EPOCH - 1)
    assert (behind.records, flags(behind)) == ((), (False, True, False))
    there = beat(image, applied=EPOCH)
    assert there.records == (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=EPOCH, fenced=-1),
    )
    assert flags(there) == (True, False, False)


def test_broker_that_wants_to_be_fenced_stays_fenced() -> None:
    decision = beat(running(broker(1, fenced=True)), want_fence=True)
    assert (decision.records, flags(decision)) == ((), (True, True, False))


def test_broker_may_request_to_be_fenced() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(1, 2))
    decision = beat(image, want_fence=True)
    assert flags(decision) == (True, True, False)
    assert after(image, decision).brokers[1].fenced
    assert state_of(after(image, decision)).leader == 2


@pytest.mark.parametrize("want_fence", [False, True])
def test_fenced_broker_may_shut_down_immediately(want_fence: bool) -> None:
    decision = beat(running(broker(1, fenced=True)), want_shut_down=True, want_fence=want_fence)
    assert (decision.records, flags(decision)) == ((), (True, True, True))


def test_broker_without_leaderships_may_shut_down_immediately() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(2, 1))
    decision = beat(image, want_shut_down=True)
    assert flags(decision) == (True, True, True)
    assert state_of(after(image, decision)).isr == (2,)
    assert after(image, decision).brokers[1].fenced


def test_broker_that_requests_fencing_and_shutdown_shuts_down_immediately() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(1, 2))
    assert flags(beat(image, want_shut_down=True, want_fence=True)) == (True, True, True)


def test_controlled_shutdown_moves_leaders_before_the_broker_shuts_down() -> None:
    """The broker shuts down only when the others have applied that."""
    heartbeats = HeartbeatTracker()
    image = with_topic(
        running(broker(1), broker(2), broker(3)), partition(1, 2, 3), partition(3, 1, 2)
    )
    first = beat(image, heartbeats, want_shut_down=True)
    assert flags(first) == (True, False, False)
    image = after(image, first)
    assert image.brokers[1].in_controlled_shutdown
    assert not image.brokers[1].fenced
    assert [state_of(image, index).leader for index in (0, 1)] == [2, 3]
    assert [state_of(image, index).isr for index in (0, 1)] == [(2, 3), (3, 2)]

    moved = image.offset
    for applied, may_shut_down in ((moved - 1, False), (moved, True)):
        beat(image, heartbeats, broker_id=2, applied=moved)
        beat(image, heartbeats, broker_id=3, applied=applied)
        decision = beat(image, heartbeats, want_shut_down=True)
        assert flags(decision) == (True, may_shut_down, may_shut_down)
    assert after(image, decision).brokers[1].fenced


def test_shutdown_waits_for_brokers_without_a_known_metadata_offset() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(1, 2))
    heartbeats = HeartbeatTracker()
    image = after(image, beat(image, heartbeats, want_shut_down=True))
    assert flags(beat(image, heartbeats, want_shut_down=True)) == (True, False, False)


def test_only_broker_may_shut_down_after_its_partitions_are_offline() -> None:
    image = with_topic(running(broker(1)), partition(1))
    heartbeats = HeartbeatTracker()
    image = after(image, beat(image, heartbeats, want_shut_down=True))
    assert (state_of(image).leader, state_of(image).eligible_leader_replicas) == (NO_LEADER, (1,))
    assert flags(beat(image, heartbeats, want_shut_down=True)) == (True, True, True)


def test_controlled_shutdown_continues_under_a_new_controller() -> None:
    image = with_topic(running(broker(1, shutting_down=True), broker(2)), partition(1, 2))
    decision = beat(image, want_shut_down=True)
    assert flags(decision) == (True, False, False)
    assert state_of(after(image, decision)).leader == 2


def test_replicas_of_an_offline_directory_leave_the_isr_and_others_stay() -> None:
    image = with_topic(
        running(broker(1, directories=2), broker(2)),
        partition(1, 2),
        partition(1, 2, directories=(directory(1, 1), directory(2))),
        partition(2, 1, directories=(directory(2), directory(1, 1))),
    )
    decision = beat(image, offline_log_dirs=(directory(1, 1),))
    assert flags(decision) == (True, False, False)
    now = after(image, decision)
    assert now.brokers[1].directories == (directory(1),)
    assert [state_of(now, index).leader for index in range(3)] == [1, 2, 2]
    assert [state_of(now, index).isr for index in range(3)] == [(1, 2), (2,), (2,)]
    assert beat(now, offline_log_dirs=(directory(1, 1),)).records == ()


def test_unfenced_broker_does_not_lead_from_an_offline_directory() -> None:
    """The two changes of one heartbeat build on each other."""
    image = with_topic(
        running(broker(1, fenced=True, directories=2)),
        partition(
            1,
            isr=(),
            eligible_leader_replicas=(1,),
            last_known_elr=(1,),
            directories=(directory(1, 1),),
        ),
    )
    decision = beat(image, offline_log_dirs=(directory(1, 1),))
    now = after(image, decision)
    assert not now.brokers[1].fenced
    state = state_of(now)
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (NO_LEADER, (), (1,))


def test_broker_without_online_directories_is_in_no_isr() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(1, 2))
    now = after(image, beat(image, offline_log_dirs=(directory(1),)))
    assert (state_of(now).leader, state_of(now).isr) == (2, (2,))
    assert beat(now, offline_log_dirs=(directory(1),)).records == ()


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    image = running(broker(1, directories=2))
    cordoned = after(image, beat(image, cordoned_log_dirs=(directory(1),)))
    assert cordoned.brokers[1].cordoned_directories == (directory(1),)
    assert beat(cordoned, cordoned_log_dirs=(directory(1),)).records == ()
    assert beat(cordoned).records == ()
    assert (
        after(cordoned, beat(cordoned, cordoned_log_dirs=())).brokers[1].cordoned_directories == ()
    )
