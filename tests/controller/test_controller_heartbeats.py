"""Who was heard of when."""

from __future__ import annotations

from penstock.controller.brokers.liveness import Heartbeats

SESSION = 9.0


def test_a_session_ends_when_nothing_is_heard_for_its_timeout() -> None:
    heartbeats = Heartbeats()
    heartbeats.touch(2, 10, 101.0)
    heartbeats.touch(1, 11, 100.0)
    assert heartbeats.next_deadline(SESSION) == 109.0
    assert heartbeats.expired(109.0, SESSION) == []
    assert heartbeats.expired(109.5, SESSION) == [1]
    assert heartbeats.expired(111.0, SESSION) == [1, 2]
    assert (
        heartbeats.has_session(1, 109.5, SESSION),
        heartbeats.has_session(2, 109.5, SESSION),
    ) == (False, True)


def test_a_heartbeat_makes_it_longer() -> None:
    heartbeats = Heartbeats()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.touch(1, 10, 105.0)
    assert heartbeats.expired(110.0, SESSION) == []
    assert heartbeats.heard_since(1, 104.0)
    assert not heartbeats.heard_since(1, 105.0)


def test_a_last_life_cannot_lengthen_the_session_of_the_next() -> None:
    heartbeats = Heartbeats()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.touch(1, 9, 105.0)
    assert heartbeats.expired(110.0, SESSION) == [1]
    heartbeats.touch(1, 11, 106.0)
    assert heartbeats.expired(110.0, SESSION) == []


def test_who_is_forgotten_has_no_session_that_could_end() -> None:
    heartbeats = Heartbeats()
    heartbeats.touch(1, 10, 100.0)
    heartbeats.note_leaving(1, 10, 50)
    heartbeats.forget(1)
    heartbeats.forget(2)
    assert heartbeats.next_deadline(SESSION) is None
    assert not heartbeats.has_session(1, 100.0, SESSION)
    assert not heartbeats.heard_since(1, 0.0)
    assert heartbeats.leaves_at(1, 10) is None


def test_progress_alone_is_no_session() -> None:
    heartbeats = Heartbeats()
    heartbeats.note_applied(1, 10, 50)
    assert heartbeats.expired(1e9, SESSION) == []


def test_the_slowest_counts_and_who_was_not_heard_of_is_slowest() -> None:
    heartbeats = Heartbeats()
    heartbeats.note_applied(1, 10, 50)
    heartbeats.note_applied(1, 10, 40)
    heartbeats.note_applied(2, 11, 45)
    assert heartbeats.lowest_applied([1, 2]) == 45
    assert heartbeats.lowest_applied([1]) == 50
    assert heartbeats.lowest_applied([1, 2, 3]) == -1
    assert heartbeats.lowest_applied([]) is None
    heartbeats.note_applied(1, 12, 5)
    assert heartbeats.lowest_applied([1]) == 5


def test_the_first_word_on_leaving_counts() -> None:
    heartbeats = Heartbeats()
    heartbeats.note_leaving(1, 10, 50)
    heartbeats.note_leaving(1, 10, 60)
    assert heartbeats.leaves_at(1, 10) == 50
    assert heartbeats.leaves_at(1, 11) is None
