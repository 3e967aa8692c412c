"""Rules of the metadata quorum: votes, leaders, and what is committed."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    MetadataBatchCommitted,
    QuorumHighWatermarkAdvanced,
    VoteGranted,
    VotersAppended,
)
from penstock.sim.cluster.history import History, Violation


def one_vote_per_epoch(history: History) -> Iterator[Violation]:
    """Rule 16."""
    votes: dict[tuple[int, str, int], int] = {}
    for vote in history.of(VoteGranted):
        first = votes.setdefault((vote.node, vote.directory, vote.epoch), vote.candidate)
        if first != vote.candidate:
            yield Violation(
                vote.at,
                f"node {vote.node} voted for {first} and for {vote.candidate} in epoch "
                f"{vote.epoch}",
            )


def one_quorum_leader_per_epoch(history: History) -> Iterator[Violation]:
    """Rule 16."""
    leaders: dict[int, int] = {}
    for event in history.of(BecameQuorumLeader):
        first = leaders.setdefault(event.epoch, event.node)
        if first != event.node:
            yield Violation(
                event.at,
                f"nodes {first} and {event.node} both led the quorum in epoch {event.epoch}",
            )


def leaders_are_elected_by_the_newest_voters(history: History) -> Iterator[Violation]:
    """Rule 16: a majority of the newest voters in its log elects a leader, committed or not."""
    for event in history.of(BecameQuorumLeader):
        if event.granted * 2 <= event.voters:
            yield Violation(
                event.at,
                f"node {event.node} leads epoch {event.epoch} by the votes of {event.granted} of "
                f"the {event.voters} newest voters in its log",
            )


def voters_change_one_at_a_time(history: History) -> Iterator[Violation]:
    """Rule 17: one voter is added or removed, after the change before it is committed, and after a
    record of the leader's epoch is (KIP-853)."""
    for event in history.of(VotersAppended):
        text = f"node {event.node} changes the voters in epoch {event.epoch}"
        if len(event.voters ^ event.before) > 1:
            yield Violation(
                event.at, f"{text} from {sorted(event.before)} to {sorted(event.voters)}"
            )
        if not event.is_before_committed:
            yield Violation(event.at, f"{text}, before the last change is committed")
        if not event.has_committed_in_epoch:
            yield Violation(event.at, f"{text}, before it has committed a record of that epoch")


def wiped_voters_do_not_vote(history: History) -> Iterator[Violation]:
    """Rule 19: a voter whose directory was emptied does not vote under its old identity."""
    for vote in history.of(VoteGranted):
        if not vote.is_addressed:
            yield Violation(
                vote.at,
                f"node {vote.node} voted for {vote.candidate} in epoch {vote.epoch} as a voter "
                "with another directory",
            )


def metadata_is_committed_by_a_majority(history: History) -> Iterator[Violation]:
    """Rule 17: a majority has it on disk, and an entry of an earlier epoch is not committed by
    counting replicas alone."""
    for event in history.of(QuorumHighWatermarkAdvanced):
        text = f"node {event.node} committed metadata up to {event.offset}"
        if event.replicas * 2 <= event.voters:
            yield Violation(
                event.at, f"{text}, but {event.replicas} of {event.voters} voters have it on disk"
            )
        if event.entry_epoch != event.epoch:
            yield Violation(
                event.at,
                f"{text} in epoch {event.epoch}, by an entry of epoch {event.entry_epoch}",
            )


def metadata_agrees(history: History) -> Iterator[Violation]:
    """Rule 17: committed metadata is identical everywhere and never changes."""
    committed: dict[int, MetadataBatchCommitted] = {}
    for event in history.of(MetadataBatchCommitted):
        first = committed.setdefault(event.offset, event)
        if first.checksum != event.checksum:
            yield Violation(
                event.at,
                f"committed metadata at {event.offset} differs between nodes {first.node} and "
                f"{event.node}",
            )
