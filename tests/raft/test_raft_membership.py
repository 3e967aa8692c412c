"""Changes of the voters (KIP-853): a test for each rule of `penstock.raft.membership`, and laws 10
and 11 of the machine."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.ids import NO_UUID
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoterRequest,
    AppendVoters,
    AskSupportedVersions,
    BeginQuorumEpochRequest,
    Commit,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    FetchResponse,
    RemoveVoterRequest,
    Request,
    RequestReceived,
    ResponseReceived,
    SaveElectionState,
    SendRequest,
    SendResponse,
    SupportedVersionsReceived,
    Sync,
    UpdateVoterRequest,
    UpgradeKRaftVersionRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import CandidateState, FollowerState, LeaderState, UnattachedState
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VotersEntry, VoterSet, VoterSetHistory
from tests.raft.raft_harness import TIMING, Harness, sent_fetch


def directory(node_id: int, life: int = 0) -> UUID:
    return UUID(int=1000 * (life + 1) + node_id)


def voter(node_id: int, life: int = 0, port: int = 9093) -> Voter:
    endpoint = Endpoint("CONTROLLER", f"c{node_id}", port)
    return Voter(node_id, directory(node_id, life), (endpoint,), max_version=1)


def voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(map(voter, node_ids))


class Leader(Harness):
    """Node 1 leads dynamic voters 1, 2 and 3, and has committed the first records of its epoch:
    LeaderChange, kraft.version and voters."""

    def __init__(self, *node_ids: int, is_committed: bool = True) -> None:
        super().__init__(dynamic=voters(*(node_ids or (1, 2, 3))))
        self.elect()
        self.sync()
        if is_committed:
            self.commit(*[other for other in self.raft.voters if other != 1])

    def elect(self) -> list[Effect]:
        return [] if self.is_in(LeaderState) else super().elect()

    def caught_up(self, node_id: int, life: int = 0) -> list[Effect]:
        """A replica fetches at the log end offset."""
        end = self.log.end
        return self.fetch(
            node_id,
            end.offset,
            end.epoch,
            high_watermark=self.raft.high_watermark,
            directory_id=directory(node_id, life),
        )

    def commit(self, *node_ids: int) -> list[Effect]:
        effects = self.sync()
        for node_id in node_ids:
            effects += self.caught_up(node_id)
        return effects

    def ask(self, request: Request, name: str = "change") -> list[Effect]:
        return self.step(RequestReceived(-1, request, name))

    def add(self, added: Voter, levels: tuple[int, int] | None = (0, 1)) -> list[Effect]:
        effects = self.ask(AddVoterRequest(added))
        if AskSupportedVersions(added) in effects:
            effects += self.step(SupportedVersionsReceived(added.key, levels))
        return effects

    @property
    def leading(self) -> LeaderState:
        assert isinstance(self.raft.state, LeaderState)
        return self.raft.state


def answers(effects: list[Effect], name: str = "change") -> list[ErrorCode]:
    return [
        effect.response.error
        for effect in effects
        if isinstance(effect, SendResponse)
        and effect.reply_to == name
        and isinstance(effect.response, VoterChangeResponse)
    ]


def appended(effects: list[Effect]) -> list[tuple[int, ...]]:
    return [effect.voters.ids for effect in effects if isinstance(effect, AppendVoters)]


# The history of a log's voters


def test_newest_voters_count_and_truncation_goes_back() -> None:
    history = VoterSetHistory(VoterSet.static((1, 2)))
    assert history.latest == VotersEntry(-1, 0, VoterSet.static((1, 2)))
    history.add_kraft_version(5, 1)
    history.add_voters(6, voters(1, 2))
    history.add_voters(9, voters(1, 2, 3))
    assert (history.latest.offset, history.latest.voters.ids) == (9, (1, 2, 3))
    assert history.before(9).voters == voters(1, 2)
    assert history.before(6) == VotersEntry(5, 1, VoterSet.static((1, 2)))
    history.truncate(9)
    assert history.latest == VotersEntry(6, 1, voters(1, 2))
    history.truncate(5)
    assert history.latest.kraft_version == 0


def test_snapshot_replaces_the_voters_before_it() -> None:
    history = VoterSetHistory(VoterSet.static(()))
    history.add_voters(3, voters(1))
    history.restart(19, VotersEntry(19, 1, voters(1, 2)))
    history.add_voters(30, voters(1, 2, 3))
    history.truncate(10)
    assert history.latest.voters == voters(1, 2), "never below the snapshot"
    history.add_voters(31, voters(1, 2, 3))
    history.forget_before(40)
    history.truncate(0)
    assert history.latest.voters == voters(1, 2, 3)


def test_voter_set_refuses_two_voters_with_one_id() -> None:
    with pytest.raises(ValueError, match="same id"):
        voters(1, 2).add(voter(2, life=1))
    assert voters(1, 2).remove(ReplicaKey(2, directory(2, life=1))) is None
    assert voters(1, 2).update(voter(2, life=1)) is None


# Bootstrap


def test_first_leader_writes_the_voters_of_the_checkpoint_to_the_log() -> None:
    harness = Leader(is_committed=False)
    latest = harness.log.voter_sets.latest
    assert (latest.offset, latest.kraft_version, latest.voters) == (2, 1, voters(1, 2, 3))


def test_later_leader_writes_the_voters_only_if_its_endpoints_changed() -> None:
    known = voters(1, 2, 3)
    for local, is_written in ((voter(1), False), (voter(1, port=9999), True)):
        harness = Harness(dynamic=known, local=local, log=[1, 1, 1])
        harness.log.voter_sets.add_voters(2, known)
        harness.elect()
        latest = harness.log.voter_sets.latest
        assert (latest.offset > 2) is is_written
        assert latest.voters.get(1) == local


# Adding


def test_voter_is_added_when_it_has_caught_up_and_the_new_majority_has_the_record() -> None:
    harness = Leader()
    harness.caught_up(4)
    effects = harness.add(voter(4))
    assert appended(effects) == [(1, 2, 3, 4)]
    assert harness.raft.voters == (1, 2, 3, 4), "before it is committed"
    assert answers(effects) == []
    offset = harness.log.end.offset
    assert answers(harness.commit(2)) == [], "2 of 4 have it"
    assert answers(harness.caught_up(4)) == [ErrorCode.NONE]
    assert harness.raft.high_watermark == offset


def test_supported_levels_of_the_new_voter_are_written() -> None:
    harness = Leader()
    harness.caught_up(4)
    harness.add(Voter(4, directory(4), voter(4).endpoints))
    assert harness.raft.voter_set.get(4) == voter(4)


@pytest.mark.parametrize(
    ("levels", "error"),
    [(None, ErrorCode.REQUEST_TIMED_OUT), ((0, 0), ErrorCode.INVALID_REQUEST)],
)
def test_voter_that_does_not_answer_or_support_the_version_is_refused(
    levels: tuple[int, int] | None, error: ErrorCode
) -> None:
    harness = Leader()
    harness.caught_up(4)
    effects = harness.add(voter(4), levels)
    assert answers(effects) == [error]
    assert appended(effects) == []
    assert harness.leading.change is None, "another change may follow"


def test_observer_that_lags_is_not_added() -> None:
    harness = Leader()
    assert answers(harness.add(voter(4))) == [ErrorCode.REQUEST_TIMED_OUT], "it never fetched"
    harness.fetch(4, 0, 0, directory_id=directory(4))
    assert answers(harness.add(voter(4))) == [ErrorCode.REQUEST_TIMED_OUT]
    harness.caught_up(4)
    harness.now += TIMING.fetch_timeout / 2
    harness.caught_up(2)
    assert appended(harness.add(voter(4))) == [(1, 2, 3, 4)]


def test_observer_under_load_has_caught_up_if_it_reached_the_end_of_its_last_fetch() -> None:
    harness = Leader()
    harness.fetch(4, 0, 0, directory_id=directory(4))
    end = harness.log.end
    harness.log.epochs.append(1)
    harness.fetch(4, end.offset, end.epoch, directory_id=directory(4))
    assert appended(harness.add(voter(4))) == [(1, 2, 3, 4)]


def test_voter_with_a_known_id_is_a_duplicate() -> None:
    harness = Leader()
    harness.caught_up(3, life=1)
    assert answers(harness.add(voter(3, life=1))) == [ErrorCode.DUPLICATE_VOTER]


def test_response_does_not_wait_for_the_commit_unless_asked() -> None:
    harness = Leader()
    harness.caught_up(4)
    harness.ask(AddVoterRequest(voter(4), ack_when_committed=False))
    effects = harness.step(SupportedVersionsReceived(voter(4).key, (0, 1)))
    assert answers(effects) == [ErrorCode.NONE]
    assert answers(harness.commit(2, 4)) == [], "one response"


# The rules


def test_one_change_at_a_time() -> None:
    """Rules 1 and 2."""
    harness = Leader()
    harness.caught_up(4)
    harness.caught_up(5)
    harness.ask(AddVoterRequest(voter(4)))
    assert answers(harness.ask(RemoveVoterRequest(voter(3).key), "other"), "other") == [
        ErrorCode.REQUEST_TIMED_OUT
    ]
    harness.step(SupportedVersionsReceived(voter(4).key, (0, 1)))
    harness.wait(TIMING.request_timeout / 2)
    harness.caught_up(2)
    assert answers(harness.ask(AddVoterRequest(voter(5)), "other"), "other") == [
        ErrorCode.REQUEST_TIMED_OUT
    ]


def test_uncommitted_voters_block_the_next_change_also_after_the_timeout() -> None:
    harness = Leader()
    harness.caught_up(4)
    harness.add(voter(4))
    for _ in range(3):  # check-quorum: voters 2 and 3 fetch, but do not have the new record
        harness.now += TIMING.request_timeout / 2
        for node_id in (2, 3):
            harness.fetch(node_id, 3, 1, high_watermark=3, directory_id=directory(node_id))
    assert harness.leading.change is None, "it timed out"
    assert answers(harness.ask(RemoveVoterRequest(voter(4).key))) == [ErrorCode.REQUEST_TIMED_OUT]


def test_no_change_before_a_record_of_the_epoch_is_committed() -> None:
    """Rule 3: an earlier leader may have written another change (the bug of 2015 in Raft)."""
    harness = Leader(is_committed=False)
    harness.caught_up(4)
    assert answers(harness.ask(AddVoterRequest(voter(4)))) == [ErrorCode.REQUEST_TIMED_OUT]
    assert answers(harness.ask(RemoveVoterRequest(voter(3).key))) == [ErrorCode.REQUEST_TIMED_OUT]


def test_removed_voter_no_longer_counts_before_the_commit() -> None:
    """Rule 4: the majority of the new voters commits them."""
    harness = Leader()
    effects = harness.ask(RemoveVoterRequest(voter(3).key))
    assert appended(effects) == [(1, 2)]
    assert answers(harness.commit(3)) == [], "voter 3 has it, and no longer counts"
    assert answers(harness.caught_up(2)) == [ErrorCode.NONE]


def test_leader_that_removes_itself_does_not_count_and_resigns_after_the_commit() -> None:
    """Rule 5."""
    harness = Leader()
    harness.ask(RemoveVoterRequest(voter(1).key))
    assert harness.raft.voters == (2, 3)
    effects = harness.commit(2)
    assert not any(isinstance(effect, Commit) for effect in effects), "1 of 2: it does not count"
    effects = harness.caught_up(3)
    assert answers(effects) == [ErrorCode.NONE]
    ended = [
        effect
        for effect in effects
        if isinstance(effect, SendRequest) and isinstance(effect.request, EndQuorumEpochRequest)
    ]
    assert [effect.destination for effect in ended] == [2, 3]
    assert harness.is_in(UnattachedState)
    harness.wait(60.0)
    assert not harness.is_in(CandidateState), "it is no voter any more"


def test_last_voter_is_not_removed() -> None:
    harness = Leader(1)
    assert answers(harness.ask(RemoveVoterRequest(voter(1).key))) == [ErrorCode.INVALID_REQUEST]


def test_unknown_voter_is_not_removed() -> None:
    harness = Leader()
    for key in (voter(4).key, voter(3, life=1).key):
        assert answers(harness.ask(RemoveVoterRequest(key))) == [ErrorCode.VOTER_NOT_FOUND]


def test_change_fails_if_the_leadership_is_lost() -> None:
    harness = Leader()
    harness.ask(RemoveVoterRequest(voter(3).key))
    effects = harness.step(RequestReceived(2, BeginQuorumEpochRequest(9, directory(1)), "begin"))
    assert answers(effects) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_follower_changes_no_voters() -> None:
    harness = Harness(dynamic=voters(1, 2, 3))
    for request in (
        AddVoterRequest(voter(4)),
        RemoveVoterRequest(voter(3).key),
        UpgradeKRaftVersionRequest(1),
    ):
        effects = harness.step(RequestReceived(-1, request, "change"))
        assert answers(effects) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_static_voters_do_not_change() -> None:
    harness = Harness()
    harness.elect()
    harness.sync()
    harness.fetch(2, 1, 1)
    for request in (AddVoterRequest(voter(4)), RemoveVoterRequest(voter(3).key)):
        effects = harness.step(RequestReceived(-1, request, "change"))
        assert answers(effects) == [ErrorCode.UNSUPPORTED_VERSION]


# Laws 10 and 11: votes


def test_uncommitted_voters_of_the_log_elect() -> None:
    """Law 10: a candidate needs a majority of the newest voters in its log."""
    harness = Harness(dynamic=voters(1, 2, 3), log=[1, 1, 1, 1])
    harness.log.voter_sets.add_voters(3, voters(1, 2, 3, 4, 5))
    effects = harness.respond_to_votes(harness.wait(3.0), {2: True, 3: True})
    assert harness.is_in(CandidateState)
    harness.respond_to_votes(effects, {2: True})
    assert not harness.is_in(LeaderState), "2 of 5"


def test_removed_voter_stands_until_its_removal_is_committed() -> None:
    """Otherwise nobody leads: voter 2 needs the vote of 1, which refuses it to a shorter log."""
    harness = Harness(dynamic=voters(1, 2), log=[1, 1, 1, 1])
    harness.log.voter_sets.add_voters(3, voters(2))
    effects = harness.respond_to_votes(harness.wait(3.0), {2: True})
    assert harness.is_in(CandidateState)
    harness.respond_to_votes(effects, {2: True})
    assert harness.is_in(LeaderState), "1 of 1, without its own vote"


def test_removed_voter_does_not_count_its_own_vote() -> None:
    harness = Harness(dynamic=voters(1, 2, 3), log=[1, 1, 1, 1])
    harness.log.voter_sets.add_voters(3, voters(2, 3))
    harness.respond_to_votes(harness.wait(3.0), {2: True})
    assert not harness.is_in(CandidateState), "1 of 2"


def test_vote_request_says_which_voter_it_is_for() -> None:
    harness = Harness(dynamic=voters(1, 2, 3))
    requests = [effect.request for effect in harness.wait(3.0) if isinstance(effect, SendRequest)]
    assert {
        (request.directory_id, request.voter_directory_id)
        for request in requests
        if isinstance(request, VoteRequest)
    } == {(directory(1), directory(2)), (directory(1), directory(3))}


def vote(harness: Harness, sender: int, to: UUID, *, life: int = 0, epoch: int = 5) -> VoteResponse:
    request = VoteRequest(epoch, OffsetAndEpoch(9, 4), False, directory(sender, life), to)
    harness.effects = harness.step(RequestReceived(sender, request, "vote"))
    (response,) = [
        effect.response for effect in harness.effects if isinstance(effect, SendResponse)
    ]
    assert isinstance(response, VoteResponse)
    return response


def test_wiped_voter_does_not_vote_under_its_old_identity() -> None:
    """Law 11, rule 19."""
    harness = Harness(dynamic=voters(1, 2, 3), local=voter(1, life=1))
    assert vote(harness, 2, directory(1)).error is ErrorCode.INVALID_VOTER_KEY
    assert vote(harness, 2, NO_UUID).error is ErrorCode.INVALID_VOTER_KEY
    assert vote(harness, 2, directory(1, life=1)).granted, "it was added again"
    begin = RequestReceived(2, BeginQuorumEpochRequest(5, directory(1)), "begin")
    (effect,) = harness.step(begin)
    assert isinstance(effect, SendResponse)
    assert effect.response.error is ErrorCode.INVALID_VOTER_KEY


def test_wiped_voter_does_not_stand() -> None:
    harness = Harness(dynamic=voters(1, 2, 3), local=voter(1, life=1))
    harness.wait(60.0)
    assert harness.is_in(UnattachedState)


def test_vote_is_for_a_candidate_with_its_directory() -> None:
    harness = Harness(dynamic=voters(1, 2, 3))
    assert vote(harness, 2, directory(1)).granted
    assert harness.effects[0] == SaveElectionState(
        ElectionState(5, 2, voted_directory_id=directory(2))
    )
    assert not vote(harness, 2, directory(1), life=1).granted, "another replica with the same id"
    assert vote(harness, 2, directory(1)).granted


def test_voter_that_does_not_know_the_latest_voters_grants_its_vote() -> None:
    """KIP-853: without it, voters that are added could be left without a majority."""
    harness = Harness(node_id=4, dynamic=voters(1, 2, 3), local=voter(4))
    assert vote(harness, 2, directory(4)).granted, "it was added, and does not know it"
    harness = Harness(dynamic=voters(1, 2, 3))
    assert vote(harness, 7, directory(1)).granted, "7 was added, and voter 1 does not know it"


def test_replica_that_looks_for_the_leader_acknowledges_only_synced_records() -> None:
    """The bootstrap server that it asks may lead, and may have made it a voter meanwhile. The
    voters explorer found it, with seed 168."""
    node = Harness(dynamic=voters(1, 2, 3), node_id=4, local=voter(4))
    lookup = sent_fetch(node.start_effects)
    named = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1)
    fetch = sent_fetch(node.step(ResponseReceived(1, lookup, named)))
    node.respond_to_fetch(1, fetch, records=[1, 1])
    effects = node.wait(TIMING.fetch_timeout)
    assert node.is_in(UnattachedState)
    assert not any(isinstance(effect, SendRequest) for effect in effects)
    assert Sync() in effects
    node.sync()
    assert sent_fetch(node.wait(TIMING.retry_backoff)).offset == 2


def test_fetch_of_a_wiped_voter_does_not_count() -> None:
    harness = Leader(is_committed=False)
    harness.sync()
    effects = harness.caught_up(2, life=1)
    assert not any(isinstance(effect, Commit) for effect in effects)
    assert list(harness.leading.observers) == [ReplicaKey(2, directory(2, life=1))]
    assert any(isinstance(effect, Commit) for effect in harness.caught_up(2))


# A log that ends before kraft.version was raised


def test_node_with_static_voters_follows_a_leader_that_joined_later() -> None:
    """Its log lacks the records that made node 4 a voter. The voters explorer found it, with seed
    414."""
    node = Harness(node_id=9)
    lookup = sent_fetch(node.start_effects)
    named = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, 7)
    assert sent_fetch(node.step(ResponseReceived(1, lookup, named))).epoch == 7
    assert (node.raft.leader_id, node.raft.epoch) == (4, 7)


def test_static_voter_accepts_requests_of_voters_that_joined_later() -> None:
    """They are for its directory id, which only a VotersRecord has."""
    vote = VoteRequest(7, OffsetAndEpoch(5, 6), False, directory(4), directory(1))
    node = Harness(local=voter(1))
    effects = node.step(RequestReceived(4, vote, "vote"))
    assert SendResponse("vote", VoteResponse(ErrorCode.NONE, -1, 7, granted=True)) in effects
    node.step(RequestReceived(4, BeginQuorumEpochRequest(7, directory(1)), "begin"))
    assert node.raft.leader_id == 4


# Announcements of voters


def follower(local: Voter, *, auto_join: bool = False, static: bool = False) -> list[Request]:
    """Return what a follower of leader 2 asks for after its first fetch, but fetches."""
    harness = Harness(
        node_id=local.id,
        dynamic=None if static else voters(1, 2, 3),
        local=local,
        auto_join=auto_join,
    )
    begin = BeginQuorumEpochRequest(1, NO_UUID if static else local.directory_id)
    effects = harness.step(RequestReceived(2, begin, "begin"))
    assert harness.is_in(FollowerState)
    effects = harness.respond_to_fetch(2, harness.fetch_in_flight)
    kinds = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    return [
        effect.request
        for effect in effects
        if isinstance(effect, SendRequest) and isinstance(effect.request, kinds)
    ]


def test_follower_announces_itself_or_asks_to_join() -> None:
    assert follower(voter(1)) == []
    moved = voter(1, port=9999)
    assert follower(moved) == [UpdateVoterRequest(1, moved)]
    assert follower(voter(1), static=True) == [UpdateVoterRequest(1, voter(1))], (
        "an upgrade of kraft.version needs it"
    )
    assert follower(voter(4)) == []
    assert follower(voter(4), auto_join=True) == [AddVoterRequest(voter(4), False)]
    assert follower(voter(1, life=1), auto_join=True) == [RemoveVoterRequest(voter(1).key)], (
        "its old identity goes first"
    )


def test_update_of_a_voter_changes_its_endpoints_alone() -> None:
    harness = Leader()
    moved = voter(2, port=9999)
    effects = harness.step(RequestReceived(2, UpdateVoterRequest(1, moved), "change"))
    assert answers(effects) == [ErrorCode.NONE]
    assert harness.raft.voter_set.get(2) == moved
    assert harness.raft.voters == (1, 2, 3)
    harness.commit(2, 3)
    for request, error in (
        (UpdateVoterRequest(1, moved), ErrorCode.NONE),
        (UpdateVoterRequest(1, voter(2, life=1)), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoterRequest(0, moved), ErrorCode.FENCED_LEADER_EPOCH),
        (UpdateVoterRequest(7, moved), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        effects = harness.step(RequestReceived(2, request, "change"))
        assert answers(effects) == [error]
        assert appended(effects) == []


# The upgrade of kraft.version


def static_leader() -> Harness:
    harness = Harness(local=voter(1))
    harness.elect()
    harness.sync()
    harness.fetch(2, 1, 1)
    return harness


def upgrade(harness: Harness, level: int = 1, *, validate_only: bool = False) -> list[Effect]:
    request = UpgradeKRaftVersionRequest(level, validate_only)
    return harness.step(RequestReceived(-1, request, "change"))


def test_upgrade_needs_the_directory_ids_of_all_voters() -> None:
    harness = static_leader()
    assert answers(upgrade(harness)) == [ErrorCode.INVALID_UPDATE_VERSION]
    for node_id in (2, 3):
        request = UpdateVoterRequest(1, voter(node_id))
        effects = harness.step(RequestReceived(node_id, request, "change"))
        assert answers(effects) == [ErrorCode.NONE]
    assert answers(upgrade(harness, validate_only=True)) == [ErrorCode.NONE]
    assert harness.raft.kraft_version == 0
    assert appended(upgrade(harness)) == [(1, 2, 3)]
    assert harness.raft.kraft_version == 1
    harness.sync()
    end = harness.log.end
    effects = harness.fetch(2, end.offset, end.epoch, directory_id=directory(2))
    assert answers(effects) == [ErrorCode.NONE]
    assert harness.raft.voter_set == voters(1, 2, 3)
    assert answers(upgrade(harness)) == [ErrorCode.NONE], "it is already there"
    assert answers(upgrade(harness, 0)) == [ErrorCode.INVALID_UPDATE_VERSION]


def test_upgrade_needs_the_support_of_all_voters() -> None:
    harness = static_leader()
    old = Voter(3, directory(3), voter(3).endpoints)
    for each in (voter(2), old):
        harness.step(RequestReceived(each.id, UpdateVoterRequest(1, each), "change"))
    assert answers(upgrade(harness)) == [ErrorCode.INVALID_UPDATE_VERSION]
