"""Every checker of cluster runs, on histories made by hand that it must reject, and on a good one
that all must take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.ids import TopicPartition
from penstock.sim.cluster import checks as seen
from penstock.sim.cluster import group_checks as groups
from penstock.sim.cluster import inner_checks as inside
from penstock.sim.cluster.checks import Checker
from penstock.sim.cluster.history import (
    Acknowledged,
    Advanced,
    Appended,
    Applied,
    Assigned,
    ClocksAlone,
    CommitBegan,
    CommitEnded,
    Counted,
    Cut,
    Decided,
    Denied,
    Elected,
    Event,
    History,
    Led,
    OffsetsFound,
    ProducerKind,
    Read,
    ReplicaLog,
    Ruled,
    Sent,
    Stolen,
    TopicCreated,
    Voted,
)
from penstock.sim.cluster.run import CHECKERS

P = TopicPartition("t", 0)
# Broker 1 coordinates the group.
LED = Led(1, 1, groups.PARTITION, 0, 0, 0)
ONE, TWO = b"i:1", b"i:2"


def history(*events: Event) -> History:
    """Two records of an idempotent producer, written, acknowledged and read; and what else
    happened."""
    written: list[Event] = [Sent(1, "i", P, ONE), Sent(1, "i", P, TWO)]
    written += [Advanced(2, 1, P, 0, 2, 3, 2, {1: 2, 2: 2, 3: 2})]
    written += [
        Acknowledged(2, "i", P, ONE, 0, 2),
        Acknowledged(2, "i", P, TWO, 1, 2),
        Read(3, "c", P, 0, ONE, 2),
        Read(3, "c", P, 1, TWO, 2),
    ]
    log = ReplicaLog(2, ((0, 1, b"one"), (1, 2, b"two")))
    return History(
        events=[*written, *events],
        promised={"t": True},
        unclean={"wild"},
        producers={
            "i": ProducerKind(idempotent=True, acks_all=True),
            "p": ProducerKind(idempotent=False, acks_all=False),
        },
        final={P: [(0, ONE), (1, TWO)]},
        logs={P: {1: log, 2: log, 3: log}},
        topics=("t",),
        ended=9.0,
    )


def with_final(*records: tuple[int, bytes]) -> History:
    made = history()
    made.final[P] = list(records)
    return made


def with_log(node: int, log: ReplicaLog) -> History:
    made = history()
    made.logs[P][node] = log
    return made


def unhealed() -> History:
    made = history()
    made.unhealed = "no leader"
    return made


REJECTED: list[tuple[Checker, History]] = [
    (seen.nothing_acknowledged_is_lost, with_final((0, ONE))),
    (seen.nothing_acknowledged_is_lost, history(Denied(4, "c", P, 2))),
    (seen.topics_created_are_there, history(TopicCreated(4, "gone"))),
    (seen.acknowledged_is_committed, history(Acknowledged(4, "i", P, b"i:3", 2, 2))),
    (inside.too_few_in_sync_commit_nothing, history(Advanced(4, 1, P, 0, 3, 1, 2, {1: 3}))),
    (seen.one_value_an_offset, with_final((0, TWO), (1, ONE))),
    (seen.one_value_an_offset, history(Read(4, "d", P, 0, TWO, 2))),
    (seen.one_value_an_offset, history(Acknowledged(4, "i", P, b"i:3", 1, 2))),
    (seen.idempotent_means_once, with_final((0, ONE), (1, TWO), (2, ONE))),
    (seen.log_order_is_send_order, with_final((0, TWO), (1, ONE))),
    (seen.offsets_are_dense, with_final((0, ONE), (2, TWO))),
    (seen.offsets_are_dense, history(Read(4, "c", P, 3, b"i:4", 9))),
    (inside.watermark_never_goes_back, history(Advanced(4, 1, P, 0, 1, 3, 2, {}))),
    (
        inside.watermark_is_what_all_in_sync_have,
        history(Advanced(4, 1, P, 0, 3, 3, 2, {1: 3, 2: 3, 3: 2})),
    ),
    (seen.nothing_above_the_watermark_is_served, history(Read(4, "c", P, 2, b"i:3", 2))),
    (seen.impostors_get_no_more, history(Stolen(4, 2, P, 3, 2))),
    (inside.logs_match, with_log(2, ReplicaLog(2, ((0, 1, b"one"), (1, 2, b"TWO"))))),
    (inside.logs_match, with_log(3, ReplicaLog(2, ((0, 1, b"one"),)))),
    (inside.leaders_come_from_the_in_sync, history(Elected(4, P, 3, 1, 1, (1, 2), ()))),
    (inside.leaders_come_from_the_in_sync, history(Elected(4, P, 3, 1, 1, (), (1,)))),
    (inside.leaders_are_complete, history(Led(4, 2, P, 1, 1, 2))),
    (inside.divergence_is_cut_by_epoch, history(Cut(4, 2, P, 5, 2, 3))),
    (inside.old_leaders_take_nothing, history(Appended(4, 1, P, 0, 2, 1))),
    (inside.old_fetches_do_not_count, history(Counted(4, 1, P, 2, 7, 9))),
    (inside.old_fetches_do_not_count, history(Counted(4, 1, P, 2, 9, 7))),
    (
        groups.one_owner_a_generation,
        history(Assigned(4, "m", 1, frozenset({P})), Assigned(4, "n", 1, frozenset({P}))),
    ),
    (
        groups.stale_members_commit_nothing,
        history(
            Assigned(4, "n", 2, frozenset({P})),
            CommitBegan(5, 1, "m", 1, {P: 2}),
            CommitEnded(6, 1, None),
        ),
    ),
    (
        groups.committed_offsets_never_go_back,
        history(
            LED,
            CommitBegan(4, 1, "m", 1, {P: 2}),
            CommitEnded(5, 1, None),
            OffsetsFound(7, 6, 1, {P: 1}),
        ),
    ),
    (
        groups.committed_offsets_never_go_back,
        history(
            LED,
            CommitBegan(4, 1, "m", 1, {P: 2}),
            CommitEnded(5, 1, None),
            OffsetsFound(7, 6, 1, {}),
        ),
    ),
    (inside.one_vote_an_epoch, history(Voted(4, 1, 5, 2), Voted(5, 1, 5, 3))),
    (inside.one_quorum_leader_an_epoch, history(Ruled(4, 1, 5), Ruled(5, 2, 5))),
    (inside.metadata_needs_a_majority, history(Decided(4, 1, 5, 10, 5, 1, 3))),
    (inside.metadata_needs_a_majority, history(Decided(4, 1, 5, 10, 4, 2, 3))),
    (inside.metadata_agrees, history(Applied(4, 1, 10, 77), Applied(5, 2, 10, 78))),
    (seen.everything_heals, unhealed()),
    (seen.clocks_do_not_matter, history(ClocksAlone(4, 1))),
]


@pytest.mark.parametrize(
    ("checker", "bad"), REJECTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_history_is_rejected(checker: Checker, bad: History) -> None:
    assert list(checker(bad))


def test_every_checker_has_something_that_it_rejects() -> None:
    assert {checker for checker, _bad in REJECTED} == {checker for _rule, checker in CHECKERS}


def test_a_good_history_is_taken() -> None:
    good = history(
        Led(4, 2, P, 1, 2, 2),
        Elected(4, P, 2, 1, 1, (1, 2), ()),
        Elected(5, P, 3, 1, 2, (), (3,)),
        Elected(5, P, -1, 1, 2, (), ()),
        Elected(5, TopicPartition("wild", 0), 3, 1, 2, (), (1,)),
        Stolen(5, 2, P, 2, 2),
        Assigned(4, "m", 1, frozenset({P})),
        CommitBegan(4, 1, "m", 1, {P: 2}),
        CommitEnded(5, 1, None),
        Assigned(5, "n", 2, frozenset({P})),
        CommitBegan(6, 2, "m", 1, {P: 1}),
        CommitEnded(6, 2, "ILLEGAL_GENERATION"),
        LED,
        OffsetsFound(7, 6, 1, {P: 2}),
        OffsetsFound(8, 6, 2, {P: 1}),
        Appended(4, 2, P, 1, 2, 1),
        Counted(4, 1, P, 2, 7, 7),
        Cut(4, 1, P, 3, 2, 2),
        Cut(4, 1, P, 3, 2, None),
        Voted(4, 1, 5, 2),
        Voted(5, 1, 6, 3),
        Ruled(4, 2, 5),
        Ruled(5, 3, 6),
        Decided(5, 3, 6, 10, 6, 2, 3),
        Applied(4, 1, 10, 77),
        Applied(5, 2, 10, 77),
        ClocksAlone(6, 0),
        TopicCreated(6, "t"),
        Advanced(6, 2, P, 1, 2, 2, 2, {2: 2, 3: 2}),
    )
    assert [
        (checker.__name__, found) for _rule, checker in CHECKERS for found in checker(good)
    ] == []


def test_nothing_is_promised_of_a_topic_that_may_lose() -> None:
    lost = with_final((0, ONE))
    lost.promised = {"t": False}
    assert list(seen.nothing_acknowledged_is_lost(lost)) == []


def test_a_write_with_acks_1_may_be_lost_but_not_an_acknowledged_one() -> None:
    careless = history(Sent(4, "p", P, b"p:1"), Acknowledged(5, "p", P, b"p:1", 2, 2))
    assert [
        (checker.__name__, found) for _rule, checker in CHECKERS for found in checker(careless)
    ] == []


def test_a_plain_producers_retry_may_come_twice() -> None:
    twice = history(Sent(4, "p", P, b"p:1"), Acknowledged(5, "p", P, b"p:1", 3, 3))
    twice.final[P] += [(2, b"p:1"), (3, b"p:1")]
    assert [
        (checker.__name__, found) for _rule, checker in CHECKERS for found in checker(twice)
    ] == []
    assert list(
        seen.idempotent_means_once(
            replace(twice, producers={**twice.producers, "p": twice.producers["i"]})
        )
    )
