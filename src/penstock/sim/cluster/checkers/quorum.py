"""Rules of the metadata quorum: votes, leaders, and what is committed."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    MetadataBatchCommitted,
    QuorumHighWatermarkAdvanced,
    VoteGranted,
)
from penstock.sim.cluster.history import History, Violation


def one_vote_per_epoch(history: History) -> Iterator[Violation]:
    """Rule 16."""
    votes: dict[tuple[int, int], int] = {}
    for vote in history.of(VoteGranted):
        first = votes.setdefault((vote.node, vote.epoch), vote.candidate)
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
