"""Bugs planted in the machines that the explorers walk, and in the metadata quorum."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.transactions import ending
from penstock.coordinator.transactions.step import TransactionStep
from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.snapshot_download import SnapshotDownloads
from penstock.node.quorum.snapshot_store import SnapshotStore
from penstock.node.shards.shard import Shard
from penstock.protocol.internal.consumer_group_records import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from penstock.raft import elections, follower, leader
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import Synced, VoteRequest
from penstock.raft.quorum_state import QuorumState
from penstock.replica.leader import IsrProposal, Leader
from penstock.sim.harness import replaced
from penstock.sim.planted.cluster import (
    elected_outside_the_isr,
    high_watermark_moved_by_one_follower,
    high_watermark_of_the_proposed_isr,
    metadata_committed_by_a_minority,
    min_insync_ignored,
    stale_broker_epochs_accepted,
    truncated_at_the_high_watermark,
    unsynced_metadata_counts,
    vote_not_persisted,
    votes_for_outdated_logs,
)
from penstock.sim.planted.defects import uncommitted_metadata_is_applied
from penstock.sim.planted.groups import commits_answered_before_they_are_committed
from penstock.sim.planted.transactions import (
    end_txn_keeps_the_epoch,
    ends_are_answered_before_they_are_committed,
    markers_leave_before_the_outcome_is_committed,
    prepared_transactions_are_not_resumed,
    stale_epochs_may_add_partitions,
    two_phase_transactions_time_out,
)


def earlier_epochs_are_committed_by_counting() -> AbstractContextManager[None]:
    """A leader commits records of earlier epochs that a majority has (Raft, figure 8)."""
    return replaced(leader, "is_committable", lambda _original: lambda _state, _offset: True)


def leader_counts_its_unsynced_end() -> AbstractContextManager[None]:
    """A leader's own acknowledgement includes records that are not on disk."""
    return replaced(
        leader, "local_end_offset", lambda _original: lambda quorum: quorum.log.end.offset
    )


def followers_fetch_with_their_unsynced_end() -> AbstractContextManager[None]:
    """A follower acknowledges records before they are on disk."""
    return replaced(follower, "is_log_synced", lambda _original: lambda _quorum: True)


def two_votes_in_one_epoch() -> AbstractContextManager[None]:
    """A voter forgets for whom it voted."""

    def make(can_grant: Any) -> Any:
        def forgetful(quorum: QuorumState, candidate: int, request: VoteRequest, now: float) -> Any:
            voted_id, quorum.voted_id = quorum.voted_id, None
            try:
                return can_grant(quorum, candidate, request, now)
            finally:
                quorum.voted_id = voted_id

        return forgetful

    return replaced(elections, "_can_grant_vote", make)


def diverging_logs_are_not_found() -> AbstractContextManager[None]:
    """A leader answers every fetch with records, whatever the follower's last epoch is."""
    return replaced(
        leader, "validate_offset_and_epoch", lambda _original: lambda _log, _offset, _epoch: None
    )


def followers_join_before_they_have_earlier_epochs() -> AbstractContextManager[None]:
    """A follower joins the ISR when it has the high watermark of a new leader, which may be behind
    what the leader before committed."""

    def make(expand: Any) -> Any:
        def early(partition_leader: Leader) -> IsrProposal | None:
            epoch_start, partition_leader.epoch_start = partition_leader.epoch_start, 0
            try:
                proposal: IsrProposal | None = expand(partition_leader)
                return proposal
            finally:
                partition_leader.epoch_start = epoch_start

        return early

    return replaced(Leader, "_expand_isr", make)


def refused_offsets_stay() -> AbstractContextManager[None]:
    """A refused step does not restore the offsets that it changed."""
    return replaced(GroupStep, "_save_offset", lambda _original: lambda *_args: None)


def target_assignments_are_not_written() -> AbstractContextManager[None]:
    """A step changes the target assignment of a member and writes no record of it."""

    def make(write: Any) -> Any:
        def forget(step: GroupStep, key: object, value: object | None) -> None:
            write(step, key, value)
            if isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
                step.records.pop()

        return forget

    return replaced(GroupStep, "write", make)


def transactions_complete_before_their_markers() -> AbstractContextManager[None]:
    """A coordinator completes a transaction without waiting for its markers."""

    def make(prepare: Any) -> Any:
        def complete(step: Any, transaction: Any, *args: Any) -> None:
            prepare(step, transaction, *args)
            if transaction.partitions:
                ending.complete(step, transaction.transactional_id)

        return complete

    return replaced(ending, "_prepare", make)


def refused_outcomes_stay() -> AbstractContextManager[None]:
    """A step of the transaction coordinator that was refused leaves its transaction changed."""

    def unsaved(step: TransactionStep, written: Any, _transactional_id: str) -> None:
        step.records.append(written)

    return replaced(TransactionStep, "_save", lambda _original: unsaved)


def retries_end_the_next_transaction() -> AbstractContextManager[None]:
    """EndTxn of the epoch before the current one is taken for the current one."""

    def make(end: Any) -> Any:
        def lenient(step: Any, transaction: Any, sent: Any, commit: bool) -> Any:
            current = transaction.producer
            if sent.id == current.id and sent.epoch == current.epoch - 1:
                sent = current
            return end(step, transaction, sent, commit)

        return lenient

    return replaced(ending, "_end_by_epoch", make)


def unloaded_shards_drop_their_requests() -> AbstractContextManager[None]:
    """A shard that moves away leaves its waiting requests without a reply."""

    def make(unload: Any) -> Any:
        def silent(shard: Shard[Any, Any], error: Any) -> None:
            waiting, shard._replies._waiting = shard._replies._waiting, {}
            unload(shard, error)
            shard._replies._waiting = waiting

        return silent

    return replaced(Shard, "unload", make)


# The quorum around the raft machine


@contextlib.contextmanager
def followers_acknowledge_before_they_sync() -> Iterator[None]:
    """A follower fetches again before the records of the last fetch are on disk."""

    def make(sync: Any) -> Any:
        async def early(driver: RaftDriver) -> None:
            driver.deliver(Synced())
            await sync(driver)

        return early

    with followers_fetch_with_their_unsynced_end(), replaced(RaftDriver, "_sync", make):
        yield


@contextlib.contextmanager
def damaged_snapshots_are_served() -> Iterator[None]:
    """A leader serves a snapshot with a flipped bit, and a follower publishes it."""

    async def read(
        store: SnapshotStore, snapshot: OffsetAndEpoch, position: int, length: int
    ) -> tuple[int, bytes]:
        data = store._disk.read(store.path(snapshot))
        return len(data), data[position : position + length]

    async def check_nothing(_store: SnapshotStore, _path: str) -> list[int]:
        return []

    with (
        replaced(SnapshotStore, "read", lambda _original: read),
        replaced(SnapshotStore, "_check", lambda _original: check_nothing),
    ):
        yield


@contextlib.contextmanager
def snapshot_downloads_do_not_count() -> Iterator[None]:
    """A leader takes a voter that fetches a long snapshot for dead and resigns, and the download
    starts over."""

    async def begin_again(_downloads: SnapshotDownloads, _effect: Any) -> None:
        return None

    with (
        replaced(leader, "handle_snapshot_piece_served", lambda _original: lambda *_args: None),
        replaced(SnapshotDownloads, "_resume", lambda _original: begin_again),
    ):
        yield


PLANTED_RAFT = (
    earlier_epochs_are_committed_by_counting,
    leader_counts_its_unsynced_end,
    followers_fetch_with_their_unsynced_end,
    two_votes_in_one_epoch,
    diverging_logs_are_not_found,
    votes_for_outdated_logs,
    uncommitted_metadata_is_applied,
)

PLANTED_REPLICA = (
    high_watermark_moved_by_one_follower,
    high_watermark_of_the_proposed_isr,
    truncated_at_the_high_watermark,
    min_insync_ignored,
    elected_outside_the_isr,
    stale_broker_epochs_accepted,
    followers_join_before_they_have_earlier_epochs,
)

PLANTED_SHARD = (
    commits_answered_before_they_are_committed,
    refused_offsets_stay,
    target_assignments_are_not_written,
    unloaded_shards_drop_their_requests,
)

PLANTED_TXN = (
    ends_are_answered_before_they_are_committed,
    markers_leave_before_the_outcome_is_committed,
    end_txn_keeps_the_epoch,
    stale_epochs_may_add_partitions,
    two_phase_transactions_time_out,
    prepared_transactions_are_not_resumed,
    transactions_complete_before_their_markers,
    refused_outcomes_stay,
    retries_end_the_next_transaction,
)

PLANTED_QUORUM = (
    earlier_epochs_are_committed_by_counting,
    leader_counts_its_unsynced_end,
    followers_acknowledge_before_they_sync,
    two_votes_in_one_epoch,
    vote_not_persisted,
    votes_for_outdated_logs,
    metadata_committed_by_a_minority,
    unsynced_metadata_counts,
    uncommitted_metadata_is_applied,
    damaged_snapshots_are_served,
    snapshot_downloads_do_not_count,
)
