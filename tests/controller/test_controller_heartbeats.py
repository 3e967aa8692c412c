"""Sessions of brokers, and their metadata offsets."""

from __future__ import annotations

from penstock.controller.brokers.heartbeat import HeartbeatTracker

SESSION = 9.0


def test_session_expires_without_heartbeats() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.touch(2, 10, 101.0)
    heartbeats.touch(1, 11, 100.0)
    assert heartbeats.expired(109.0, SESSION) == []
    assert heartbeats.expired(109.5, SESSION) == [1]
    assert heartbeats.expired(111.0, SESSION) == [1, 2]
    assert (
        heartbeats.has_session(1, 109.5, SESSION),
        heartbeats.has_session(2, 109.5, SESSION),
    ) == (False, True)


def test_heartbeat_extends_the_session() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.touch(1, 10, 105.0)
    assert heartbeats.expired(110.0, SESSION) == []
    assert heartbeats.heard_since(1, 104.0)
    assert not heartbeats.heard_since(1, 105.0)


def test_heartbeat_of_an_earlier_epoch_does_not_extend_the_session() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.touch(1, 9, 105.0)
    assert heartbeats.expired(110.0, SESSION) == [1]
    heartbeats.touch(1, 11, 106.0)
    assert heartbeats.expired(110.0, SESSION) == []


def test_forgotten_broker_has_no_session() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.note_controlled_shutdown(1, 10, 50)
    heartbeats.forget(1)
    heartbeats.forget(2)
    assert not heartbeats.has_session(1, 100.0, SESSION)
    assert not heartbeats.heard_since(1, 0.0)
    assert heartbeats.controlled_shutdown_offset(1, 10) is None


def test_metadata_offset_alone_is_no_session() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.note_applied(1, 10, 50)
    assert heartbeats.expired(1e9, SESSION) == []


def test_lowest_applied_offset_counts_unknown_brokers_as_lowest() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.note_applied(1, 10, 50)
    heartbeats.note_applied(1, 10, 40)
    heartbeats.note_applied(2, 11, 45)
    assert heartbeats.lowest_applied([1, 2]) == 45
    assert heartbeats.lowest_applied([1]) == 50
    assert heartbeats.lowest_applied([1, 2, 3]) == -1
    assert heartbeats.lowest_applied([]) is None
    heartbeats.note_applied(1, 12, 5)
    assert heartbeats.lowest_applied([1]) == 5


def test_first_controlled_shutdown_offset_counts() -> None:
    heartbeats = HeartbeatTracker()
    heartbeats.note_controlled_shutdown(1, 10, 50)
    heartbeats.note_controlled_shutdown(1, 10, 60)
    assert heartbeats.controlled_shutdown_offset(1, 10) == 50
    assert heartbeats.controlled_shutdown_offset(1, 11) is None
