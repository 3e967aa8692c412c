"""The laws of `replica.leader`, one by one and under random histories."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.metadata.image import BrokerImage, PartitionState
from penstock.replica.leader import IsrMember, IsrProposal, Leader

LAG_S = 30.0
BROKERS = {
    number: BrokerImage(number, 100 + number, UUID(int=number), fenced=False)
    for number in (1, 2, 3)
}


def make_leader(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    end: int = 0,
    watermark: int = 0,
    min_insync: int = 1,
    brokers: dict[int, BrokerImage] | None = None,
) -> Leader:
    known = BROKERS if brokers is None else brokers
    return Leader(
        1,
        PartitionState(replicas=(1, 2, 3), isr=isr, leader=1, leader_epoch=5, partition_epoch=7),
        end_offset=end,
        counted_end=end,
        high_watermark=watermark,
        min_insync=min_insync,
        lag_max_s=LAG_S,
        brokers=lambda: known,
        now=0.0,
    )


def fetch(leader: Leader, replica: int, offset: int, now: float = 0.0) -> IsrProposal | None:
    return leader.fetched(replica, 100 + replica, offset, 0, now)


def append(leader: Leader, end: int, now: float = 0.0) -> None:
    leader.appended(end, end, now)


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    leader = make_leader()
    append(leader, 10)
    assert leader.high_watermark == 0
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0, "broker 3 has not fetched yet"
    fetch(leader, 3, 4)
    assert leader.high_watermark == 4
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


def test_the_high_watermark_does_not_go_back_with_a_follower() -> None:
    leader = make_leader()
    append(leader, 10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    fetch(leader, 3, 2)
    assert leader.high_watermark == 10


def test_a_leader_alone_in_the_isr_commits_immediately() -> None:
    leader = make_leader((1,), end=3)
    assert leader.high_watermark == 3
    append(leader, 5)
    assert leader.high_watermark == 5


def test_unsynced_records_do_not_count() -> None:
    leader = make_leader((1,))
    leader.appended(5, 2, 0.0)
    assert leader.high_watermark == 2
    leader.counted(5, 0.0)
    assert leader.high_watermark == 5


def test_the_high_watermark_does_not_move_below_min_insync() -> None:
    leader = make_leader((1,), min_insync=2)
    append(leader, 5)
    assert (leader.high_watermark, leader.enough_in_sync) == (0, False)
    leader.set_min_insync(1, 0.0)
    assert (leader.high_watermark, leader.enough_in_sync) == (5, True)


def test_min_insync_above_the_number_of_replicas_requires_all_of_them() -> None:
    leader = make_leader(min_insync=5)
    assert (leader.min_insync, leader.enough_in_sync) == (3, True)


def test_a_caught_up_follower_is_proposed_and_holds_the_high_watermark_back() -> None:
    leader = make_leader((1, 2), end=10, watermark=10)
    assert fetch(leader, 3, 9) is None, "it does not have everything below the start of this epoch"
    proposal = fetch(leader, 3, 10)
    assert proposal == IsrProposal((IsrMember(1, -1), IsrMember(2, -1), IsrMember(3, 103)), 5, 7)
    append(leader, 20)
    fetch(leader, 2, 20)
    assert leader.high_watermark == 10, "the maximal ISR counts"
    assert fetch(leader, 3, 15) is None, "one proposal at a time"
    assert leader.high_watermark == 15
    leader.decided((1, 2, 3), 8, 0.0)
    assert (leader.isr, leader.pending, leader.partition_epoch) == ((1, 2, 3), None, 8)


def test_a_follower_above_the_high_watermark_but_below_the_epoch_start_does_not_join() -> None:
    leader = make_leader((1, 2), end=10, watermark=4)
    assert fetch(leader, 3, 8) is None
    assert fetch(leader, 3, 10) is not None


@pytest.mark.parametrize(
    "changes",
    [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 104}],
    ids=["fenced", "shutting down", "another broker epoch"],
)
def test_an_ineligible_follower_is_not_proposed(changes: dict[str, object]) -> None:
    brokers = {**BROKERS, 3: replace(BROKERS[3], **changes)}  # type: ignore[arg-type]  # fields above
    leader = make_leader((1, 2), brokers=brokers)
    assert fetch(leader, 3, 0) is None
    assert leader.review(0.0) is None


def test_a_follower_that_becomes_eligible_is_proposed_without_another_fetch() -> None:
    brokers = {**BROKERS, 3: replace(BROKERS[3], fenced=True)}
    leader = make_leader((1, 2), brokers=brokers)
    assert fetch(leader, 3, 0) is None
    brokers[3] = BROKERS[3]
    assert leader.review(0.0) is not None


def test_a_follower_with_an_offline_log_directory_neither_joins_nor_holds_back() -> None:
    """Its last fetch reached the end. The controller has removed it from the ISR, and an idle
    partition would add it again at once."""
    online, failed = UUID(int=1_001), UUID(int=1_002)
    brokers = dict(BROKERS)
    leader = make_leader(brokers=brokers)
    append(leader, 10)
    for replica in (2, 3):
        fetch(leader, replica, 10)
    brokers[3] = replace(BROKERS[3], directories=(online,))
    state = PartitionState(
        replicas=(1, 2, 3),
        isr=(1, 2),
        leader=1,
        leader_epoch=5,
        partition_epoch=8,
        directories=(UUID(int=1_003), UUID(int=1_004), failed),
    )
    leader.apply(state, 0.0)
    assert leader.review(0.0) is None
    append(leader, 11, 0.1)
    fetch(leader, 2, 11, 0.2)
    assert leader.high_watermark == 11
    moved = replace(state, partition_epoch=9, directories=(*state.directories[:2], online))
    leader.apply(moved, 0.3)
    fetch(leader, 3, 11, 0.3)
    assert leader.pending is not None


def test_fetches_of_an_earlier_broker_epoch_are_forgotten() -> None:
    brokers = dict(BROKERS)
    leader = make_leader(brokers=brokers)
    append(leader, 10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 5)
    brokers[3] = replace(BROKERS[3], epoch=200)
    leader.review(0.0)
    append(leader, 12)
    fetch(leader, 2, 12)
    assert leader.high_watermark == 5, "broker 3 may have lost records"
    leader.fetched(3, 200, 3, 0, 0.0)
    assert leader.high_watermark == 5
    leader.fetched(3, 200, 12, 0, 0.0)
    assert leader.high_watermark == 12


def test_a_follower_that_does_not_catch_up_in_time_is_proposed_for_removal() -> None:
    leader = make_leader()
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    append(leader, 10, now=100.0)
    fetch(leader, 2, 10, now=100.1)
    assert leader.review(100.0 + LAG_S) is None
    proposal = leader.review(100.1 + LAG_S)
    assert proposal is not None
    assert [member.broker_id for member in proposal.isr] == [1, 2]
    assert leader.high_watermark == 0, "it counts until the controller decides"
    leader.decided((1, 2), 8, 131.0)
    assert leader.high_watermark == 10


def test_followers_of_an_idle_partition_stay_in_sync_whenever_they_fetched() -> None:
    leader = make_leader()
    append(leader, 10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.review(1_000.0) is None
    append(leader, 11, now=1_000.0)
    assert leader.review(1_001.0) is None
    assert leader.review(1_031.0) is not None


def test_a_follower_slightly_behind_under_steady_load_stays_in_sync() -> None:
    leader = make_leader()
    for second in range(1, 100):
        append(leader, 10 * second, now=float(second))
        for replica in (2, 3):
            fetch(leader, replica, 10 * (second - 1), now=second + 0.5)
    assert leader.review(100.0) is None


def test_a_follower_outside_the_isr_that_keeps_up_holds_the_high_watermark_back() -> None:
    leader = make_leader((1,), end=10, watermark=10)
    append(leader, 20, now=1.0)
    assert leader.high_watermark == 20, "it does not count before it has caught up once"
    fetch(leader, 2, 20, now=1.0)
    leader.refused(1.0)
    append(leader, 30, now=2.0)
    assert leader.high_watermark == 20
    append(leader, 40, now=40.0)
    assert leader.high_watermark == 40


def test_a_refused_proposal_leaves_the_committed_isr() -> None:
    leader = make_leader((1, 2))
    assert fetch(leader, 3, 0) is not None
    leader.refused(0.0)
    assert (leader.maximal_isr, leader.pending) == ((1, 2), None)


def test_newer_metadata_drops_a_proposal_and_known_metadata_does_not() -> None:
    leader = make_leader((1, 2))
    fetch(leader, 3, 0)
    state = PartitionState(
        replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=7
    )
    leader.apply(state, 0.0)
    assert leader.pending is not None
    leader.apply(replace(state, isr=(1,), partition_epoch=8), 0.0)
    assert leader.isr == leader.maximal_isr == (1,)


class Histories(RuleBasedStateMachine):
    """Two followers (their log ends), a controller that decides late or not at all, and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.leader = make_leader(min_insync=2)
        self.end = 0
        self.ends = {2: 0, 3: 0}
        self.committed: tuple[int, ...] = (1, 2, 3)
        self.proposed: IsrProposal | None = None
        self.highest = 0

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        append(self.leader, self.end, self.now)

    @rule(replica=st.sampled_from((2, 3)), count=st.integers(0, 5))
    def follow(self, replica: int, count: int) -> None:
        self.ends[replica] = min(self.ends[replica] + count, self.end)
        self._record(fetch(self.leader, replica, self.ends[replica], self.now))

    @rule(seconds=st.floats(0.0, 40.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self._record(self.leader.review(self.now))

    def _record(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            assert self.proposed is None
            self.proposed = proposal

    @precondition(lambda self: self.proposed is not None)
    @rule(delivered=st.booleans())
    def decide(self, delivered: bool) -> None:
        """The controller decides before the leader receives it, and may then elect from the new
        ISR."""
        assert self.proposed is not None
        self.committed = tuple(member.broker_id for member in self.proposed.isr)
        if delivered:
            self._check()
            self.leader.decided(self.committed, self.leader.partition_epoch + 1, self.now)
            self.proposed = None

    @precondition(lambda self: self.proposed is not None and self.committed == self.leader.isr)
    @rule()
    def refuse(self) -> None:
        self.leader.refused(self.now)
        self.proposed = None

    @invariant()
    def _check(self) -> None:
        watermark = self.leader.high_watermark
        assert watermark >= self.highest, "it never goes back"
        assert watermark <= self.end
        for replica in self.committed:
            assert watermark <= self.ends.get(replica, self.end), (
                f"an electable replica has everything: {replica} in {self.committed}"
            )
        self.highest = watermark


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_histories = Histories.TestCase
