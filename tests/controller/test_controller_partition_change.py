"""PartitionChangeRecords: a test for each of Kafka's rules for ISR, ELR and last known leaders."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from penstock.controller.partitions.change_builder import (
    RECOVERED,
    RECOVERING,
    AcceptableLeaders,
    Election,
    PartitionChange,
    PartitionTarget,
    build_partition_change,
)
from penstock.controller.partitions.election_config import ElectionConfig
from penstock.metadata.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    PartitionState,
    TopicImage,
)
from penstock.metadata.topics_delta import apply_partition_change
from penstock.protocol.internal.metadata_topics import PartitionChangeRecord
from tests.controller.clusters import TOPIC_ID, broker, cluster, directory, partition

ALL_UP = (broker(1), broker(2), broker(3))


def change(
    state: PartitionState,
    *brokers: BrokerImage,
    min_isr: int = 2,
    elr: bool = True,
    election: Election = Election.ONLINE,
    added: int | None = None,
    removed: int | None = None,
    **target: Any,
) -> PartitionChange | None:
    leaders = AcceptableLeaders(cluster(*(brokers or ALL_UP)), added=added, removed=removed)
    topic = TopicImage("t", TOPIC_ID, {0: state})
    config = ElectionConfig(min_isr, False, elr)
    return build_partition_change(
        topic, 0, state, config, leaders, election, PartitionTarget(**target)
    )


def changed(state: PartitionState, *brokers: BrokerImage, **more: Any) -> PartitionState:
    built = change(state, *brokers, **more)
    return state if built is None else apply_partition_change(state, built.record)


def record(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)


def test_no_record_without_a_change() -> None:
    assert change(partition(1, 2, 3)) is None


def test_first_live_in_sync_replica_of_the_assignment_leads() -> None:
    state = partition(3, 1, 2, isr=(1, 2, 3), leader=3)
    built = change(state, broker(1), broker(2), broker(3, fenced=True), isr=(1, 2))
    assert built == PartitionChange(record(leader=1, isr=(1, 2)), None)


def test_live_leader_stays() -> None:
    """Only a preferred election replaces a live leader."""
    state = partition(1, 2, 3, leader=2)
    assert change(state) is None
    assert change(state, election=Election.PREFERRED) == PartitionChange(record(leader=1), None)


def test_preferred_leader_outside_the_isr_is_not_elected() -> None:
    assert change(partition(1, 2, 3, isr=(2, 3)), election=Election.PREFERRED) is None


def test_isr_shrink_increments_only_the_partition_epoch() -> None:
    """Since metadata.version 3.6."""
    state = changed(partition(1, 2, 3, leader_epoch=5, partition_epoch=8), isr=(1, 2))
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1, 2), 5, 9)


def test_replicas_that_leave_below_min_insync_stay_eligible() -> None:
    state = changed(partition(1, 2, 3, isr=(1, 2)), isr=(1,))
    assert (state.isr, state.eligible_leader_replicas) == ((1,), (2,))


def test_replicas_that_leave_above_min_insync_are_not_eligible() -> None:
    assert changed(partition(1, 2, 3), isr=(1, 2)).eligible_leader_replicas == ()


def test_elr_is_cleared_when_enough_replicas_are_in_sync() -> None:
    assert (
        changed(
            partition(1, 2, 3, isr=(1,), eligible_leader_replicas=(2, 3)), isr=(1, 3)
        ).eligible_leader_replicas
        == ()
    )


def test_isr_member_is_not_in_the_elr() -> None:
    state = changed(
        partition(1, 2, 3, isr=(1,), eligible_leader_replicas=(2, 3)), min_isr=3, isr=(1, 2)
    )
    assert (state.isr, state.eligible_leader_replicas) == ((1, 2), (3,))


def test_unclean_shutdown_removes_the_broker_from_isr_and_elr() -> None:
    state = partition(1, 2, 3, isr=(1,), eligible_leader_replicas=(2, 3))
    assert changed(
        state, removed=2, isr=(1,), unclean_shutdown_replica=2
    ).eligible_leader_replicas == (3,)
    left = changed(partition(1, 2, 3, isr=(1, 2)), removed=2, isr=(1,), unclean_shutdown_replica=2)
    assert (left.isr, left.eligible_leader_replicas) == ((1,), ())


def test_offline_partition_remembers_its_last_leader() -> None:
    built = change(partition(1, 2, isr=(1,)), broker(1), broker(2), removed=1, isr=())
    assert built == PartitionChange(
        record(leader=NO_LEADER, isr=(), eligible_leader_replicas=(1,), last_known_elr=(1,)), None
    )


def test_eligible_replica_leads_when_the_isr_is_empty() -> None:
    gone = partition(1, 2, 3, isr=(), eligible_leader_replicas=(1, 2), last_known_elr=(1,))
    built = change(gone, broker(1, fenced=True), broker(2), broker(3))
    assert built == PartitionChange(
        record(leader=2, isr=(2,), eligible_leader_replicas=(1,), last_known_elr=()), None
    )


def test_eligible_replica_does_not_lead_while_the_isr_has_members() -> None:
    state = partition(1, 2, 3, isr=(1,), leader=NO_LEADER, eligible_leader_replicas=(2,))
    assert change(state, broker(1, fenced=True), broker(2), broker(3)) is None


def test_last_known_leader_leads_when_isr_and_elr_are_empty() -> None:
    """Independent of the unclean setting. The leader is marked as recovering, with a warning."""
    built = change(partition(1, 2, isr=(), last_known_elr=(1,)), broker(1), broker(2))
    assert built is not None
    assert built.record == record(
        leader=1, isr=(1,), leader_recovery_state=RECOVERING, last_known_elr=()
    )
    assert built.warning is not None
    assert "t-0: broker 1 was elected leader as the last known leader" in built.warning


def test_no_other_replica_leads_in_its_place() -> None:
    assert (
        change(partition(1, 2, isr=(), last_known_elr=(1,)), broker(1, fenced=True), broker(2))
        is None
    )


def test_several_last_known_elr_members_are_not_elected() -> None:
    assert change(partition(1, 2, isr=(), last_known_elr=(1, 2)), broker(1), broker(2)) is None


def test_last_known_leader_leads_only_with_elr() -> None:
    assert (
        change(partition(1, 2, isr=(), last_known_elr=(1,)), broker(1), broker(2), elr=False)
        is None
    )


def test_unclean_election_elects_any_live_replica_and_warns_of_data_loss() -> None:
    gone = partition(
        1, 2, 3, isr=(), eligible_leader_replicas=(1,), last_known_elr=(1,), leader_epoch=6
    )
    up = (broker(1, fenced=True), broker(2), broker(3))
    assert change(gone, *up) is None
    built = change(gone, *up, election=Election.UNCLEAN)
    assert built is not None
    assert built.record == record(
        leader=2,
        isr=(2,),
        eligible_leader_replicas=(),
        last_known_elr=(),
        leader_recovery_state=RECOVERING,
    )
    assert built.warning is not None
    assert "broker 2 was elected leader by an unclean election in leader epoch 7" in built.warning
    assert "eligible replicas [1]" in built.warning


def test_unclean_election_prefers_in_sync_replicas() -> None:
    state = partition(1, 2, 3, isr=(3,), leader=NO_LEADER)
    assert change(state, election=Election.UNCLEAN) == PartitionChange(record(leader=3), None)


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr() -> None:
    state = changed(partition(1, 2, isr=(1,)), broker(1), broker(2), elr=False, removed=1, isr=())
    assert (state.leader, state.isr, state.eligible_leader_replicas, state.last_known_elr) == (
        NO_LEADER,
        (1,),
        (),
        (),
    )


def test_without_elr_no_replica_stays_eligible() -> None:
    assert (
        changed(
            partition(1, 2, isr=(1,), eligible_leader_replicas=(2,)), elr=False
        ).eligible_leader_replicas
        == ()
    )


def test_eligible_replica_leads_after_elr_is_disabled() -> None:
    """While a partition has neither ISR nor leader, nothing can be committed: its eligible replicas
    have every acknowledged record. Kafka elects from them too, and clears the ELR."""
    gone = partition(1, 2, 3, isr=(), eligible_leader_replicas=(1, 2), last_known_elr=(1,))
    built = change(gone, broker(1, fenced=True), broker(2), broker(3), elr=False)
    assert built == PartitionChange(
        record(leader=2, isr=(2,), eligible_leader_replicas=(), last_known_elr=()), None
    ), "a clean election"


def test_eligible_replicas_stay_until_one_leads_after_elr_is_disabled() -> None:
    """Else the return of a replica that is not eligible would leave only an unclean election."""
    gone = partition(1, 2, 3, isr=(), eligible_leader_replicas=(1, 2))
    only = (broker(1, fenced=True), broker(2, fenced=True), broker(3))
    assert change(gone, *only, elr=False) is None
    state = changed(gone, *only, elr=False, replicas=(2, 3), directories=(directory(2),) * 2)
    assert state.eligible_leader_replicas == (2,), "a removed replica is not eligible"
    unclean = changed(gone, *only, elr=False, election=Election.UNCLEAN)
    assert (unclean.leader, unclean.isr, unclean.eligible_leader_replicas) == (3, (3,), ())


def test_unclean_election_prefers_an_eligible_replica_after_elr_is_disabled() -> None:
    gone = partition(1, 2, 3, isr=(), eligible_leader_replicas=(2,))
    state = changed(gone, elr=False, election=Election.UNCLEAN)
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), RECOVERED)


def test_eligible_replica_does_not_replace_the_last_in_sync_replica_without_elr() -> None:
    """The in-sync replica may have committed records since ELR was disabled."""
    state = partition(1, 2, isr=(1,), eligible_leader_replicas=(2,))
    after = changed(state, broker(1), broker(2), elr=False, removed=1, isr=())
    assert (after.leader, after.isr, after.eligible_leader_replicas) == (NO_LEADER, (1,), ())


def test_leader_recovery_state_is_cleared() -> None:
    state = partition(1, 2, isr=(1,), leader_recovery_state=RECOVERING)
    assert change(state, isr=(1,), leader_recovery_state=RECOVERED, min_isr=1) == PartitionChange(
        record(leader_recovery_state=RECOVERED), None
    )


@pytest.mark.parametrize("where", [LOST_DIRECTORY, directory(1, 7)])
def test_replica_in_an_offline_directory_does_not_lead(where: UUID) -> None:
    state = partition(1, 2, leader=NO_LEADER, directories=(where, directory(2)))
    assert changed(state).leader == 2


def test_replica_without_a_known_directory_may_lead() -> None:
    state = partition(1, 2, leader=NO_LEADER, directories=(UNASSIGNED_DIRECTORY, directory(2)))
    assert changed(state).leader == 1


def test_broker_in_controlled_shutdown_does_not_lead() -> None:
    assert (
        changed(partition(1, 2, leader=NO_LEADER), broker(1, shutting_down=True), broker(2)).leader
        == 2
    )


def test_reassignment_completes_when_all_remaining_replicas_are_in_sync() -> None:
    moving = partition(1, 2, 3, isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,))
    state = changed(moving, isr=(1, 2, 3))
    assert (state.replicas, state.isr, state.leader) == ((2, 3), (2, 3), 2)
    assert (state.adding_replicas, state.removing_replicas, state.directories) == (
        (),
        (),
        (directory(2), directory(3)),
    )


def test_reassignment_continues_until_then() -> None:
    moving = partition(1, 2, 3, isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,))
    assert change(moving) is None


def test_replicas_removed_by_a_reassignment_are_fenced_by_a_new_leader_epoch() -> None:
    moving = partition(2, 3, 1, isr=(2, 3), removing_replicas=(1,), leader_epoch=4)
    state = changed(moving)
    assert (state.leader, state.leader_epoch, state.replicas) == (2, 5, (2, 3))
