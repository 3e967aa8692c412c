"""Bugs planted on purpose, to show that the checkers of cluster runs bite: each breaks one law of
the product while its `with` lasts.

They reach into product code by name. When that code is moved, they fail loudly (KeyError), and must
move with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from penstock.controller.partitions import change as partition_change
from penstock.ids import Buffer
from penstock.log.log import Appended, Log
from penstock.log.producers.state import ProducerStates
from penstock.metadata.image import PartitionState
from penstock.node.partition import partition as partition_module
from penstock.node.partition.partition import Partition
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.quorum_state_store import QuorumStateStore
from penstock.raft import elections
from penstock.raft import leader as raft_leader
from penstock.raft.messages import VoteRequest
from penstock.raft.quorum_state import QuorumState
from penstock.replica.follower import DivergingEpoch
from penstock.replica.leader import IsrProposal, Leader
from penstock.sim.patching import replaced
from penstock.sim.planted_groups import PLANTED_GROUPS

Planted = Callable[[], AbstractContextManager[None]]


def acknowledged_before_replicated() -> AbstractContextManager[None]:
    return replaced(Partition, "is_committed", lambda _was: lambda _partition, _end: True)


def cut_at_the_watermark() -> AbstractContextManager[None]:
    """As Kafka did before KIP-101."""

    def make(truncate: Any) -> Any:
        async def cut(partition: Partition, leader_epoch: int, diverging: DivergingEpoch) -> None:
            end_offset = min(diverging.end_offset, partition.high_watermark)
            await truncate(partition, leader_epoch, DivergingEpoch(diverging.epoch, end_offset))

        return cut

    return replaced(Partition, "truncate", make)


def vote_not_persisted() -> AbstractContextManager[None]:
    async def save_nothing(*_args: Any) -> None:
        await asyncio.sleep(0)

    return replaced(QuorumStateStore, "save", lambda _was: save_nothing)


def elected_outside_the_isr() -> AbstractContextManager[None]:
    """The first replica that lives, whatever it has."""

    def make(elect: Any) -> Any:
        def any_replica(
            state: Any,
            rules: Any,
            candidates: Any,
            election: Any,
            replicas: Any,
            isr: Any,
            elr: Any,
        ) -> Any:
            living = [replica for replica in replicas if candidates.may_lead(state, replica)]
            still_leads = state.leader in living and state.leader in isr
            return elect(
                state,
                rules,
                candidates,
                election,
                replicas,
                isr if still_leads else tuple(living) or isr,
                elr,
            )

        return any_replica

    return replaced(partition_change, "_elect", make)


def watermark_moved_by_one_follower() -> AbstractContextManager[None]:
    """Whoever fetches moves it, however far the others lag."""

    def make(fetched: Any) -> Any:
        def moved(
            leader: Leader, replica_id: int, broker_epoch: int, offset: int, *args: Any
        ) -> IsrProposal | None:
            proposal: IsrProposal | None = fetched(leader, replica_id, broker_epoch, offset, *args)
            leader.high_watermark = max(leader.high_watermark, min(offset, leader.counted_end))
            return proposal

        return moved

    return replaced(Leader, "fetched", make)


def watermark_over_the_proposed_isr() -> AbstractContextManager[None]:
    """Those that are to leave are not waited for any more, before the controller agreed."""

    def smaller(leader: Leader) -> tuple[int, ...]:
        return (
            leader.isr
            if leader.pending is None
            else tuple(member.broker_id for member in leader.pending.isr)
        )

    return replaced(Leader, "maximal_isr", lambda _was: property(smaller))


def min_insync_ignored() -> AbstractContextManager[None]:
    def make(advance: Any) -> Any:
        def careless(leader: Leader, now: float) -> None:
            leader.enough_in_sync = True
            advance(leader, now)

        return careless

    return replaced(Leader, "_advance", make)


def deposed_leader_goes_on() -> AbstractContextManager[None]:
    """It hears of the new leader, and serves on."""

    def make(become: Any) -> Any:
        def stay(partition: Partition, state: PartitionState) -> None:
            if not partition.is_leader or partition.leader_id == state.leader:
                become(partition, state)

        return stay

    return replaced(Partition, "become", make)


def producers_forgotten_by_followers() -> AbstractContextManager[None]:
    """A follower appends records, and does not keep in mind whose they were."""

    def make(append: Any) -> Any:
        def forget(log: Log, records: Buffer) -> Appended:
            appended: Appended = append(log, records)
            log.producers = ProducerStates()
            log.producers.end_offset = log.end_offset
            return appended

        return forget

    return replaced(Log, "append_as_follower", make)


def metadata_committed_by_a_minority() -> AbstractContextManager[None]:
    """The quorum's leader counts its own log alone."""

    def alone(quorum: QuorumState, state: Any) -> None:
        end_offset = raft_leader.local_end_offset(quorum)
        if raft_leader.is_committable(state, end_offset):
            quorum.advance_high_watermark(end_offset)

    return replaced(raft_leader, "_update_high_watermark", lambda _was: alone)


def unsynced_metadata_counts() -> AbstractContextManager[None]:
    return replaced(MetadataLog, "synced_end", lambda _was: property(lambda log: log.end.offset))


def uncommitted_records_are_served() -> AbstractContextManager[None]:
    """Consumers read up to the log's end."""

    def make(read: Any) -> Any:
        def ahead(partition: Partition, *args: Any, **kwargs: Any) -> Any:
            watermark, partition.high_watermark = partition.high_watermark, partition.log_end_offset
            try:
                return read(partition, *args, **kwargs)
            finally:
                partition.high_watermark = watermark

        return ahead

    return replaced(Partition, "read", make)


def old_lives_count() -> AbstractContextManager[None]:
    """A fetch that a broker sent before it was started anew is taken for one of its present
    life."""

    def make(check: Any) -> Any:
        def lenient(brokers: Any, node_id: int, replica_id: int, broker_epoch: int) -> None:
            known = brokers.get(replica_id)
            check(
                brokers,
                node_id,
                replica_id,
                broker_epoch if known is None else max(broker_epoch, known.epoch),
            )

        return lenient

    return replaced(partition_module, "check_replica", make)


def impostors_are_believed() -> AbstractContextManager[None]:
    """Whoever says that it is a replica is taken for one."""
    return replaced(partition_module, "check_replica", lambda _was: lambda *_args: None)


def votes_given_to_the_outdated() -> AbstractContextManager[None]:
    """A voter does not look at how far the candidate's log goes."""

    def make(grants: Any) -> Any:
        def lenient(quorum: QuorumState, candidate: int, request: VoteRequest, now: float) -> bool:
            end = max(request.end, quorum.log.end, key=lambda end: end.rank)
            forged = VoteRequest(request.epoch, end, request.pre_vote)
            return bool(grants(quorum, candidate, forged, now))

        return lenient

    return replaced(elections, "_can_grant_vote", make)


PLANTED: tuple[Planted, ...] = (
    acknowledged_before_replicated,
    cut_at_the_watermark,
    vote_not_persisted,
    elected_outside_the_isr,
    watermark_moved_by_one_follower,
    watermark_over_the_proposed_isr,
    min_insync_ignored,
    deposed_leader_goes_on,
    producers_forgotten_by_followers,
    metadata_committed_by_a_minority,
    unsynced_metadata_counts,
    uncommitted_records_are_served,
    old_lives_count,
    impostors_are_believed,
    votes_given_to_the_outdated,
    *PLANTED_GROUPS,
)
