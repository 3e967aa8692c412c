"""Bugs planted in the rules by which the voters of the quorum change (KIP-853)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.raft import elections, leader, membership
from penstock.raft.quorum_state import QuorumState
from penstock.raft.states import LeaderState
from penstock.raft.voters import VoterSet
from penstock.sim.harness import replaced


def two_changes_at_once() -> AbstractContextManager[None]:
    """The leader changes the voters although the last change is not committed."""
    return replaced(
        membership, "is_change_pending", lambda _original: lambda _quorum, _state: False
    )


def change_before_a_commit_in_this_epoch() -> AbstractContextManager[None]:
    """A new leader changes the voters before it has committed a record of its epoch."""
    return replaced(
        membership, "has_committed_in_epoch", lambda _original: lambda _quorum, _state: True
    )


@contextlib.contextmanager
def majority_of_the_old_voters() -> Iterator[None]:
    """The leader counts the voters before a change until it is committed."""

    def make(apply: Any) -> Any:
        def late(quorum: QuorumState, now: float) -> None:
            latest, state = quorum.log.voter_sets.latest, quorum.state
            if isinstance(state, LeaderState) and latest.offset >= quorum.high_watermark:
                if state.change is not None and state.change.voters == latest.voters:
                    state.change.offset = latest.offset
                return
            apply(quorum, now)

        return late

    with replaced(membership, "apply_voter_set", make):
        yield


def wiped_voter_votes_under_its_old_identity() -> AbstractContextManager[None]:
    """A voter does not look at the directory id in a request."""
    return replaced(elections, "is_addressed", lambda _original: lambda _quorum, _directory: True)


def uncommitted_voters_are_ignored() -> AbstractContextManager[None]:
    """A candidate asks the last voters that it knows to be committed."""

    def committed(quorum: QuorumState) -> VoterSet:
        return quorum.log.voter_sets.before(quorum.high_watermark).voters

    return replaced(QuorumState, "voter_set", lambda _original: property(committed))


def removed_leader_counts_itself() -> AbstractContextManager[None]:
    """A leader that removes itself still counts its own log."""
    return replaced(leader, "is_counted", lambda _original: lambda _quorum, _state: True)


def removed_voter_does_not_stand() -> AbstractContextManager[None]:
    """A leader that removed itself and lost the leadership does not stand, although its removal is
    not committed. It refuses its vote to all others, whose logs are behind."""

    def stands(quorum: QuorumState) -> bool:
        return quorum.is_voter and not quorum.has_resigned

    return replaced(QuorumState, "may_stand", lambda _original: property(stands))


PLANTED_MEMBERSHIP = (
    two_changes_at_once,
    change_before_a_commit_in_this_epoch,
    majority_of_the_old_voters,
    wiped_voter_votes_under_its_old_identity,
    uncommitted_voters_are_ignored,
    removed_leader_counts_itself,
)

# Bugs that walks with changes of the voters catch.
PLANTED_VOTERS = (*PLANTED_MEMBERSHIP, removed_voter_does_not_stand)
