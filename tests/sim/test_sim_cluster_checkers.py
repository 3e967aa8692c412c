"""Each checker of cluster runs rejects histories written by hand that break its rule, and accepts a
correct one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.security.acls import Acl
from penstock.sim.cluster.checkers import (
    CHECKERS,
    access_control,
    clients,
    compaction,
    damage,
    groups,
    quorum,
    reassignments,
    replication,
)
from penstock.sim.cluster.events import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    BecameLeader,
    BecameQuorumLeader,
    ClocksJumped,
    DiskFails,
    EpochEndFetched,
    Event,
    FileDamaged,
    FileRepaired,
    FollowerFetchAccepted,
    HeartbeatAnswered,
    HighWatermarkAdvanced,
    ImpostorFetched,
    KeyedRecordAcknowledged,
    KeyedRecordSent,
    LeaderAppended,
    LeaderElected,
    LogTruncated,
    MajorityStarted,
    MemberAssigned,
    MetadataBatchCommitted,
    NodeEnded,
    OffsetCommitFinished,
    OffsetCommitStarted,
    OffsetOutOfRange,
    OffsetsFetched,
    PowerLostTogether,
    QuorumHighWatermarkAdvanced,
    ReassignmentEnded,
    RecordAcknowledged,
    RecordConsumed,
    RecordSent,
    ReplacedMemberCommitted,
    StrangerAnswered,
    TopicCreated,
    VoteGranted,
    VotersAppended,
)
from penstock.sim.cluster.history import (
    Checker,
    Events,
    History,
    KeyedRecord,
    ProducerKind,
    ReplicaLog,
    Violation,
)
from tests.sim.test_sim_transaction_checkers import REJECTED as REJECTED_TRANSACTIONS

P = TopicPartition("t", 0)
VOTERS = frozenset({(1, "a"), (2, "b")})
# Broker 1 coordinates the group.
COORDINATOR_ELECTED = BecameLeader(1, 1, groups.GROUP_PARTITIONS[CLASSIC_GROUP], 0, 0, 0)
ONE, TWO = b"i:1", b"i:2"


def history(*events: Event) -> History:
    """A correct history of two records of an idempotent producer, followed by other events."""
    written: list[Event] = [RecordSent(1, "i", P, ONE), RecordSent(1, "i", P, TWO)]
    written += [HighWatermarkAdvanced(2, 1, P, 0, 2, 3, 2, {1: 2, 2: 2, 3: 2})]
    written += [
        RecordAcknowledged(2, "i", P, ONE, 0, 2),
        RecordAcknowledged(2, "i", P, TWO, 1, 2),
        RecordConsumed(3, "c", P, 0, ONE, 2),
        RecordConsumed(3, "c", P, 1, TWO, 2),
    ]
    log = ReplicaLog(2, ((0, 1, b"one"), (1, 2, b"two")))
    return History(
        events=Events([*written, *events]),
        durable_topics={"t": True},
        unclean_topics={"wild"},
        producers={
            "i": ProducerKind(idempotent=True, acks_all=True),
            "p": ProducerKind(idempotent=False, acks_all=False),
        },
        final_records={P: [(0, ONE), (1, TWO)]},
        final_logs={P: {1: log, 2: log, 3: log}},
        final_topics=("t",),
        ended_at=9.0,
    )


def with_final(*records: tuple[int, bytes]) -> History:
    made = history()
    made.final_records[P] = list(records)
    return made


def with_log(node: int, log: ReplicaLog) -> History:
    made = history()
    made.final_logs[P][node] = log
    return made


def authorized(*events: Event, visible: bool = False, differs: str = "") -> History:
    """Return the history of a run with access control."""
    entry = Acl(2, "t", 3, "User:a", "*", 3, 3)
    made = history(*events)
    made.has_acls = True
    made.described_acls = frozenset({entry})
    made.final_acls = {node: (frozenset({entry}), (True, False)) for node in (1, 2)}
    if visible:
        made.final_records = {P: [(0, b"stranger:1")]}
    if differs == "entries":
        made.final_acls[2] = frozenset(), (True, False)
    if differs == "decisions":
        made.final_acls[2] = frozenset({entry}), (True, True)
    return made


def not_healed() -> History:
    made = history()
    made.heal_failure = "no leader"
    return made


def trimmed(log: ReplicaLog) -> History:
    """A topic with retention.bytes=100, whose replica has this log."""
    made = history()
    made.retention_bytes["t"] = 100
    made.final_logs[P] = {1: log}
    return made


def keyed(*read: KeyedRecord) -> History:
    """Record 1 and then the tombstone 2 of key a, and record 3 of key b, all acknowledged. A
    consumer read these."""
    made = history(
        KeyedRecordSent(4, P, b"a", 1, tombstone=False),
        KeyedRecordSent(4, P, b"a", 2, tombstone=True),
        KeyedRecordSent(4, P, b"b", 3, tombstone=False),
        KeyedRecordAcknowledged(5, P, b"a", 1),
        KeyedRecordAcknowledged(5, P, b"a", 2),
        KeyedRecordAcknowledged(5, P, b"b", 3),
    )
    made.final_keyed["a consumer"] = list(read)
    return made


A1, A2 = KeyedRecord(0, b"a", 1, tombstone=False), KeyedRecord(1, b"a", 2, tombstone=True)
B3 = KeyedRecord(2, b"b", 3, tombstone=False)


def heartbeats(*errors: str | None) -> History:
    """A member sends heartbeats all the time and gets these answers, half a second apart."""
    return history(
        *(
            HeartbeatAnswered(100 + number / 2 + 0.1, "m", 100 + number / 2, 1, error)
            for number, error in enumerate(errors)
        )
    )


REFUSED = "COORDINATOR_NOT_AVAILABLE"
POWER_LOST = PowerLostTogether(5, (1, 2, 3), {P: 2})

REJECTED: list[tuple[Checker, History]] = [
    (clients.no_acknowledged_write_is_lost, with_final((0, ONE))),
    (clients.no_acknowledged_write_is_lost, history(OffsetOutOfRange(4, "c", P, 2))),
    (clients.no_created_topic_is_lost, history(TopicCreated(4, "gone"))),
    (
        clients.no_consumed_record_is_reported_truncated,
        history(EpochEndFetched(4, "c", P, 2, 1)),
    ),
    (clients.no_record_comes_from_elsewhere, with_final((0, ONE), (1, TWO), (2, b"i:other"))),
    (
        clients.retention_deletes_no_more_than_it_may,
        trimmed(ReplicaLog(9, ((8, 9, b"x" * 99),), start_offset=8)),
    ),
    (compaction.last_value_of_each_key_survives, keyed(A2)),
    (compaction.last_value_of_each_key_survives, keyed(A1, B3)),
    (compaction.compaction_keeps_the_order, keyed(A2, A1, B3)),
    (compaction.compaction_keeps_the_order, keyed(A2._replace(offset=0), A1._replace(offset=1))),
    (clients.no_false_acknowledgement, history(RecordAcknowledged(4, "i", P, b"i:3", 2, 2))),
    (
        replication.no_commit_below_min_insync,
        history(HighWatermarkAdvanced(4, 1, P, 0, 3, 1, 2, {1: 3})),
    ),
    (clients.one_value_per_offset, with_final((0, TWO), (1, ONE))),
    (clients.one_value_per_offset, history(RecordConsumed(4, "d", P, 0, TWO, 2))),
    (clients.one_value_per_offset, history(RecordAcknowledged(4, "i", P, b"i:3", 1, 2))),
    (clients.no_duplicate_from_an_idempotent_producer, with_final((0, ONE), (1, TWO), (2, ONE))),
    (clients.log_order_is_send_order, with_final((0, TWO), (1, ONE))),
    (clients.offsets_are_dense, with_final((0, ONE), (2, TWO))),
    (clients.offsets_are_dense, history(RecordConsumed(4, "c", P, 3, b"i:4", 9))),
    (
        replication.high_watermark_never_goes_back,
        history(HighWatermarkAdvanced(4, 1, P, 0, 1, 3, 2, {})),
    ),
    (
        replication.high_watermark_is_in_every_isr_log,
        history(HighWatermarkAdvanced(4, 1, P, 0, 3, 3, 2, {1: 3, 2: 3, 3: 2})),
    ),
    (
        clients.nothing_above_the_high_watermark_is_served,
        history(RecordConsumed(4, "c", P, 2, b"i:3", 2)),
    ),
    (clients.impostors_get_nothing_more, history(ImpostorFetched(4, 2, P, 3, 2))),
    (replication.logs_match, with_log(2, ReplicaLog(2, ((0, 1, b"one"), (1, 2, b"TWO"))))),
    (replication.logs_match, with_log(3, ReplicaLog(2, ((0, 1, b"one"),)))),
    (
        replication.only_eligible_replicas_are_elected,
        history(LeaderElected(4, P, 3, 1, 1, (1, 2), ())),
    ),
    (
        replication.only_eligible_replicas_are_elected,
        history(LeaderElected(4, P, 3, 1, 1, (), (1,))),
    ),
    (replication.leaders_are_complete, history(BecameLeader(4, 2, P, 1, 1, 2))),
    (replication.divergence_is_truncated_by_epoch, history(LogTruncated(4, 2, P, 5, 2, 3))),
    (replication.stale_leaders_append_nothing, history(LeaderAppended(4, 1, P, 0, 2, 1))),
    (
        replication.stale_broker_epochs_acknowledge_nothing,
        history(FollowerFetchAccepted(4, 1, P, 2, 7, 9)),
    ),
    (
        replication.stale_broker_epochs_acknowledge_nothing,
        history(FollowerFetchAccepted(4, 1, P, 2, 9, 7)),
    ),
    (
        groups.one_owner_per_generation,
        history(
            MemberAssigned(4, "m", 1, frozenset({P})), MemberAssigned(4, "n", 1, frozenset({P}))
        ),
    ),
    (
        groups.stale_members_commit_nothing,
        history(
            MemberAssigned(4, "n", 2, frozenset({P})),
            OffsetCommitStarted(5, 1, "m", 1, {P: 2}),
            OffsetCommitFinished(6, 1, None),
        ),
    ),
    (
        groups.committed_offsets_never_go_back,
        history(
            COORDINATOR_ELECTED,
            OffsetCommitStarted(4, 1, "m", 1, {P: 2}),
            OffsetCommitFinished(5, 1, None),
            OffsetsFetched(7, 6, 1, {P: 1}),
        ),
    ),
    (
        groups.committed_offsets_never_go_back,
        history(
            COORDINATOR_ELECTED,
            OffsetCommitStarted(4, 1, "m", 1, {P: 2}),
            OffsetCommitFinished(5, 1, None),
            OffsetsFetched(7, 6, 1, {}),
        ),
    ),
    (
        groups.former_owners_commit_nothing,
        history(
            MemberAssigned(4, "n", 2, frozenset({P}), CONSUMER_GROUP),
            OffsetCommitStarted(5, 1, "m", 1, {P: 2}, CONSUMER_GROUP),
            OffsetCommitFinished(6, 1, None),
        ),
    ),
    (groups.replaced_members_commit_nothing, history(ReplacedMemberCommitted(4, "m", None))),
    (
        groups.members_that_are_heard_stay,
        heartbeats(None, *(REFUSED,) * 8, "UNKNOWN_MEMBER_ID"),
    ),
    (damage.damage_is_contained, history(NodeEnded(4, 1, "no reason"))),
    (
        damage.damage_is_contained,
        history(FileDamaged(4, 1, "/d/t-0/0.log", P), NodeEnded(5, 1, "a bad CRC")),
    ),
    (
        damage.damage_is_contained,
        history(FileDamaged(4, 1, "/d/quorum-state", None), NodeEnded(5, 2, "a bad CRC")),
    ),
    (
        damage.synced_records_survive_power_loss,
        replace(with_final((0, ONE)), events=history(POWER_LOST).events),
    ),
    (damage.majorities_commit, history(MajorityStarted(4, 10.0, None))),
    (quorum.one_vote_per_epoch, history(VoteGranted(4, 1, 5, 2), VoteGranted(5, 1, 5, 3))),
    (
        quorum.one_quorum_leader_per_epoch,
        history(BecameQuorumLeader(4, 1, 5), BecameQuorumLeader(5, 2, 5)),
    ),
    (
        quorum.leaders_are_elected_by_the_newest_voters,
        history(BecameQuorumLeader(4, 1, 5, 2, 4)),
    ),
    (
        quorum.voters_change_one_at_a_time,
        history(VotersAppended(4, 1, 5, VOTERS, frozenset(), True, True)),
    ),
    (
        quorum.voters_change_one_at_a_time,
        history(VotersAppended(4, 1, 5, VOTERS, VOTERS, True, False)),
    ),
    (
        quorum.voters_change_one_at_a_time,
        history(VotersAppended(4, 1, 5, VOTERS, VOTERS, False, True)),
    ),
    (quorum.wiped_voters_do_not_vote, history(VoteGranted(4, 1, 5, 2, "d", False))),
    (
        quorum.metadata_is_committed_by_a_majority,
        history(QuorumHighWatermarkAdvanced(4, 1, 5, 10, 5, 1, 3)),
    ),
    (
        quorum.metadata_is_committed_by_a_majority,
        history(QuorumHighWatermarkAdvanced(4, 1, 5, 10, 4, 2, 3)),
    ),
    (
        quorum.metadata_agrees,
        history(MetadataBatchCommitted(4, 1, 10, 77), MetadataBatchCommitted(5, 2, 10, 78)),
    ),
    (clients.cluster_heals, not_healed()),
    (clients.clock_jumps_move_no_leader, history(ClocksJumped(4, 1))),
    (
        reassignments.reassignments_end_as_requested,
        history(ReassignmentEnded(5, P, (1, 2, 4), ((1, 2, 3), (4, 5)))),
    ),
    (
        access_control.denied_writes_are_never_visible,
        authorized(StrangerAnswered(5, P, b"stranger:1", 0)),
    ),
    (
        access_control.denied_writes_are_never_visible,
        authorized(StrangerAnswered(5, P, b"stranger:1", ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ),
    (access_control.denied_writes_are_never_visible, authorized(visible=True)),
    (access_control.entries_agree, authorized(differs="entries")),
    (access_control.entries_agree, authorized(differs="decisions")),
]


@pytest.mark.parametrize(
    ("checker", "bad"), REJECTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_history_that_breaks_the_rule_is_rejected(checker: Checker, bad: History) -> None:
    assert list(checker(bad))


def test_every_checker_is_tested() -> None:
    tested = {checker for checker, _bad in (*REJECTED, *REJECTED_TRANSACTIONS)}
    assert tested == {checker for _rule, checker in CHECKERS}


def violations(history: History) -> list[tuple[str, Violation]]:
    return [
        (checker.__name__, violation)
        for _rule, checker in CHECKERS
        for violation in checker(history)
    ]


def test_a_correct_history_is_accepted() -> None:
    good = history(
        BecameLeader(4, 2, P, 1, 2, 2),
        LeaderElected(4, P, 2, 1, 1, (1, 2), ()),
        LeaderElected(5, P, 3, 1, 2, (), (3,)),
        ReassignmentEnded(5, P, (2, 1, 3), ((4, 5), (1, 2, 3))),
        LeaderElected(5, P, -1, 1, 2, (), ()),
        LeaderElected(5, TopicPartition("wild", 0), 3, 1, 2, (), (1,)),
        ImpostorFetched(5, 2, P, 2, 2),
        MemberAssigned(4, "m", 1, frozenset({P})),
        OffsetCommitStarted(4, 1, "m", 1, {P: 2}),
        OffsetCommitFinished(5, 1, None),
        MemberAssigned(5, "n", 2, frozenset({P})),
        OffsetCommitStarted(6, 2, "m", 1, {P: 1}),
        OffsetCommitFinished(6, 2, "ILLEGAL_GENERATION"),
        COORDINATOR_ELECTED,
        OffsetsFetched(7, 6, 1, {P: 2}),
        OffsetsFetched(8, 6, 2, {P: 1}),
        LeaderAppended(4, 2, P, 1, 2, 1),
        FollowerFetchAccepted(4, 1, P, 2, 7, 7),
        LogTruncated(4, 1, P, 3, 2, 2),
        LogTruncated(4, 1, P, 3, 2, None),
        VoteGranted(4, 1, 5, 2),
        VoteGranted(5, 1, 6, 3),
        VoteGranted(5, 1, 5, 3, "another directory"),
        VotersAppended(5, 2, 5, VOTERS, frozenset({(1, "a")}), True, True),
        BecameQuorumLeader(4, 2, 5),
        BecameQuorumLeader(5, 3, 6),
        QuorumHighWatermarkAdvanced(5, 3, 6, 10, 6, 2, 3),
        MetadataBatchCommitted(4, 1, 10, 77),
        MetadataBatchCommitted(5, 2, 10, 77),
        ClocksJumped(6, 0),
        TopicCreated(6, "t"),
        HighWatermarkAdvanced(6, 2, P, 1, 2, 2, 2, {2: 2, 3: 2}),
        MemberAssigned(6, "m", 3, frozenset({P}), CONSUMER_GROUP),
        OffsetCommitStarted(6, 3, "m", 3, {P: 1}, CONSUMER_GROUP),
        OffsetCommitFinished(6, 3, None),
        ReplacedMemberCommitted(6, "m", "FENCED_INSTANCE_ID"),
        EpochEndFetched(6, "c", P, 2, 2),
        DiskFails(6, 1),
        NodeEnded(6, 1, "its disk failed"),
        FileDamaged(7, 2, "/d/quorum-state", None),
        NodeEnded(7, 2, "quorum-state is damaged"),
        FileRepaired(7, 2),
        POWER_LOST,
        MajorityStarted(8, 10.0, 4.0),
    )
    assert violations(good) == []


def test_a_history_of_denied_writes_is_accepted() -> None:
    denied = StrangerAnswered(5, P, b"stranger:1", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert violations(authorized(denied)) == []


def test_a_correctly_compacted_topic_is_accepted() -> None:
    for read in ((A1, A2, B3), (A2, B3), (B3,)):
        assert violations(keyed(*read)) == []


def test_a_correctly_trimmed_topic_is_accepted() -> None:
    log = ReplicaLog(9, ((8, 9, b"x" * 100),), start_offset=8)
    assert violations(trimmed(log)) == []
    deleted = trimmed(ReplicaLog(9, (), start_offset=8))
    deleted.deletions[P] = 8
    assert violations(deleted) == []


def test_a_member_that_is_silent_may_be_expelled() -> None:
    silent = heartbeats(None, *(REFUSED,) * 8)
    for sent, error in ((110, REFUSED), (110.5, REFUSED), (111, "UNKNOWN_MEMBER_ID")):
        silent.events.append(HeartbeatAnswered(sent, "m", sent, 1, error))
    assert violations(silent) == []


def test_a_member_that_leaves_before_it_has_joined_is_not_expelled() -> None:
    leaving = heartbeats(*(REFUSED,) * 8)
    leaving.events.append(
        HeartbeatAnswered(104.1, "m", 104, 1, "UNKNOWN_MEMBER_ID", has_joined=False)
    )
    assert violations(leaving) == []


def test_a_static_member_that_waits_for_its_predecessor_is_not_a_member() -> None:
    waiting = ("UNRELEASED_INSTANCE_ID",) * 8
    assert violations(heartbeats(*waiting, "UNKNOWN_MEMBER_ID")) == []


def test_records_of_a_topic_that_is_not_durable_may_be_lost() -> None:
    lost = with_final((0, ONE))
    lost.durable_topics = {"t": False}
    assert list(clients.no_acknowledged_write_is_lost(lost)) == []


def test_a_record_acknowledged_with_acks_1_may_be_lost() -> None:
    careless = history(RecordSent(4, "p", P, b"p:1"), RecordAcknowledged(5, "p", P, b"p:1", 2, 2))
    assert violations(careless) == []


def test_a_plain_producers_retry_may_be_appended_twice() -> None:
    twice = history(RecordSent(4, "p", P, b"p:1"), RecordAcknowledged(5, "p", P, b"p:1", 3, 3))
    twice.final_records[P] += [(2, b"p:1"), (3, b"p:1")]
    assert violations(twice) == []
    assert list(
        clients.no_duplicate_from_an_idempotent_producer(
            replace(twice, producers={**twice.producers, "p": twice.producers["i"]})
        )
    )
