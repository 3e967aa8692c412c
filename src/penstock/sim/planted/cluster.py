"""Bugs planted in replication, elections and the metadata quorum."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from penstock.controller.partitions import change_builder
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
from penstock.sim.harness import replaced


def acknowledged_before_replicated() -> AbstractContextManager[None]:
    """acks=all is answered before the high watermark passes the record."""
    return replaced(Partition, "is_committed", lambda _original: lambda _partition, _end: True)


def truncated_at_the_high_watermark() -> AbstractContextManager[None]:
    """A follower truncates at its high watermark, as in Kafka before KIP-101."""

    def make(truncate: Any) -> Any:
        async def cut(partition: Partition, leader_epoch: int, diverging: DivergingEpoch) -> None:
            end_offset = min(diverging.end_offset, partition.high_watermark)
            await truncate(partition, leader_epoch, DivergingEpoch(diverging.epoch, end_offset))

        return cut

    return replaced(Partition, "truncate", make)


def vote_not_persisted() -> AbstractContextManager[None]:
    """A voter does not write its vote to disk."""

    async def save_nothing(*_args: Any) -> None:
        await asyncio.sleep(0)

    return replaced(QuorumStateStore, "save", lambda _original: save_nothing)


def elected_outside_the_isr() -> AbstractContextManager[None]:
    """The controller elects the first replica that is alive, in sync or not."""

    def make(elect: Any) -> Any:
        def any_replica(
            state: Any,
            config: Any,
            leaders: Any,
            election: Any,
            replicas: Any,
            isr: Any,
            elr: Any,
        ) -> Any:
            living = [replica for replica in replicas if leaders.accepts(state, replica)]
            still_leads = state.leader in living and state.leader in isr
            return elect(
                state,
                config,
                leaders,
                election,
                replicas,
                isr if still_leads else tuple(living) or isr,
                elr,
            )

        return any_replica

    return replaced(change_builder, "_elect", make)


def high_watermark_moved_by_one_follower() -> AbstractContextManager[None]:
    """A fetch of one follower advances the high watermark, however far the others lag."""

    def make(fetched: Any) -> Any:
        def moved(
            leader: Leader, replica_id: int, broker_epoch: int, offset: int, *args: Any
        ) -> IsrProposal | None:
            proposal: IsrProposal | None = fetched(leader, replica_id, broker_epoch, offset, *args)
            leader.high_watermark = max(leader.high_watermark, min(offset, leader.counted_end))
            return proposal

        return moved

    return replaced(Leader, "fetched", make)


def high_watermark_of_the_proposed_isr() -> AbstractContextManager[None]:
    """The leader no longer waits for replicas that it proposed to remove from the ISR, before the
    controller agreed."""

    def smaller(leader: Leader) -> tuple[int, ...]:
        return (
            leader.isr
            if leader.pending is None
            else tuple(member.broker_id for member in leader.pending.isr)
        )

    return replaced(Leader, "maximal_isr", lambda _original: property(smaller))


def min_insync_ignored() -> AbstractContextManager[None]:
    """The high watermark advances with fewer than min.insync.replicas in sync."""

    def make(advance: Any) -> Any:
        def careless(leader: Leader, now: float) -> None:
            leader.enough_in_sync = True
            advance(leader, now)

        return careless

    return replaced(Leader, "_advance", make)


def deposed_leader_keeps_leading() -> AbstractContextManager[None]:
    """A leader ignores metadata that names another leader."""

    def make(become: Any) -> Any:
        def stay(partition: Partition, state: PartitionState) -> None:
            if not partition.is_leader or partition.leader_id == state.leader:
                become(partition, state)

        return stay

    return replaced(Partition, "become", make)


def producers_forgotten_by_followers() -> AbstractContextManager[None]:
    """A follower appends records without updating its producer state."""

    def make(append: Any) -> Any:
        def forget(log: Log, records: Buffer) -> Appended:
            appended: Appended = append(log, records)
            log.producers = ProducerStates()
            log.producers.end_offset = log.end_offset
            return appended

        return forget

    return replaced(Log, "append_as_follower", make)


def metadata_committed_by_a_minority() -> AbstractContextManager[None]:
    """The quorum leader counts its own log only."""

    def alone(quorum: QuorumState, state: Any) -> None:
        end_offset = raft_leader.local_end_offset(quorum)
        if raft_leader.is_committable(state, end_offset):
            quorum.advance_high_watermark(end_offset)

    return replaced(raft_leader, "_update_high_watermark", lambda _original: alone)


def unsynced_metadata_counts() -> AbstractContextManager[None]:
    """A voter reports metadata as synced before it is on disk."""
    return replaced(
        MetadataLog, "synced_end", lambda _original: property(lambda log: log.end.offset)
    )


def uncommitted_records_are_served() -> AbstractContextManager[None]:
    """Consumers read up to the log end offset."""

    def make(read: Any) -> Any:
        def ahead(partition: Partition, *args: Any, **kwargs: Any) -> Any:
            watermark, partition.high_watermark = partition.high_watermark, partition.log_end_offset
            try:
                return read(partition, *args, **kwargs)
            finally:
                partition.high_watermark = watermark

        return ahead

    return replaced(Partition, "read", make)


def stale_broker_epochs_accepted() -> AbstractContextManager[None]:
    """A leader accepts a fetch that a broker sent before its restart."""

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


def impostors_accepted() -> AbstractContextManager[None]:
    """A leader accepts every client that claims to be a replica."""
    return replaced(partition_module, "check_replica", lambda _original: lambda *_args: None)


def votes_for_outdated_logs() -> AbstractContextManager[None]:
    """A voter grants its vote whatever the candidate's log end is."""

    def make(grants: Any) -> Any:
        def lenient(quorum: QuorumState, candidate: int, request: VoteRequest, now: float) -> bool:
            end = max(request.end, quorum.log.end, key=lambda end: end.rank)
            forged = VoteRequest(request.epoch, end, request.pre_vote)
            return bool(grants(quorum, candidate, forged, now))

        return lenient

    return replaced(elections, "_can_grant_vote", make)


PLANTED_CLUSTER = (
    acknowledged_before_replicated,
    truncated_at_the_high_watermark,
    vote_not_persisted,
    elected_outside_the_isr,
    high_watermark_moved_by_one_follower,
    high_watermark_of_the_proposed_isr,
    min_insync_ignored,
    deposed_leader_keeps_leading,
    producers_forgotten_by_followers,
    metadata_committed_by_a_minority,
    unsynced_metadata_counts,
    uncommitted_records_are_served,
    stale_broker_epochs_accepted,
    impostors_accepted,
    votes_for_outdated_logs,
)
