"""AlterPartition: accepted and refused proposals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.controller.decision import ControllerResult
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.errors import ErrorCode
from penstock.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tests.controller.clusters import (
    TOPIC_ID,
    after,
    broker,
    context,
    directory,
    partition,
    running,
    state_of,
    with_topic,
)

Topic = AlterPartitionRequest.Topic
Proposal = Topic.Partition
Member = Proposal.NewIsrWithEpoch


def proposal(
    *isr: int, index: int = 0, leader_epoch: int = 4, partition_epoch: int = 6, recovering: int = 0
) -> Proposal:
    """Return a proposal of version 3, with the broker epochs of `broker`."""
    return Proposal(
        partition_index=index,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=recovering,
        new_isr_with_epochs=tuple(
            Member(broker_id=replica, broker_epoch=replica + 100) for replica in isr
        ),
    )


def propose(
    image: MetadataImage, *proposals: Proposal, leader: int = 1, topic_id: UUID = TOPIC_ID
) -> ControllerResult[AlterPartitionResponse]:
    topics = (Topic(topic_id=topic_id, partitions=proposals),)
    request = AlterPartitionRequest(broker_id=leader, broker_epoch=leader + 100, topics=topics)
    return alter_partition(image, request, context())


def errors(decision: ControllerResult[AlterPartitionResponse]) -> list[int]:
    return [partition.error_code for partition in decision.response.topics[0].partitions]


def three(
    *, fenced: int | None = None, shutting_down: int | None = None, **more: Any
) -> MetadataImage:
    brokers = (
        broker(id_, fenced=id_ == fenced, shutting_down=id_ == shutting_down) for id_ in (1, 2, 3)
    )
    return with_topic(
        running(*brokers), partition(1, 2, 3, **({"leader_epoch": 4, "partition_epoch": 6} | more))
    )


def test_isr_shrink_is_accepted_with_a_new_partition_epoch() -> None:
    decision = propose(three(), proposal(1, 3))
    response = decision.response.topics[0].partitions[0]
    assert (response.error_code, response.leader_id, response.isr) == (ErrorCode.NONE, 1, (1, 3))
    assert (response.leader_epoch, response.partition_epoch, response.leader_recovery_state) == (
        4,
        7,
        0,
    )
    assert replace(state_of(after(three(), decision)), partition_epoch=6) == replace(
        state_of(three()), isr=(1, 3)
    )


def test_isr_expansion_is_accepted() -> None:
    image = three(isr=(1,), eligible_leader_replicas=(2,))
    now = state_of(after(image, propose(image, proposal(1, 2))))
    assert (now.isr, now.eligible_leader_replicas) == ((1, 2), ())


def test_unchanged_isr_writes_no_record() -> None:
    decision = propose(three(), proposal(1, 2, 3))
    assert decision.records == ()
    assert decision.response.topics[0].partitions[0].partition_epoch == 6


def test_leader_recovery_state_is_cleared() -> None:
    image = three(isr=(1,), leader_recovery_state=1)
    assert errors(propose(image, proposal(1, recovering=1))) == [ErrorCode.NONE]
    assert state_of(after(image, propose(image, proposal(1, 2)))).leader_recovery_state == 0


def test_version_2_has_no_broker_epochs() -> None:
    request = replace_isr(proposal(), (1, 2))
    assert state_of(after(three(), propose(three(), request))).isr == (1, 2)


def replace_isr(given: Proposal, isr: tuple[int, ...]) -> Proposal:
    return Proposal(
        partition_index=given.partition_index,
        leader_epoch=given.leader_epoch,
        partition_epoch=given.partition_epoch,
        new_isr=isr,
    )


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (proposal(1, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, leader_epoch=5), ErrorCode.NOT_CONTROLLER),
        (proposal(1, partition_epoch=7), ErrorCode.NOT_CONTROLLER),
        (proposal(1, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, partition_epoch=5), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(), ErrorCode.INVALID_REQUEST),
        (proposal(2, 3), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (proposal(1, 4), ErrorCode.INVALID_REQUEST),
        (proposal(1, recovering=1), ErrorCode.INVALID_REQUEST),
        (proposal(1, recovering=5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_proposals(refused: Proposal, code: ErrorCode) -> None:
    decision = propose(three(), refused)
    assert (decision.records, errors(decision)) == ((), [code])


def test_isr_of_a_recovering_leader_has_one_member() -> None:
    assert errors(
        propose(three(isr=(1,), leader_recovery_state=1), proposal(1, 2, recovering=1))
    ) == [ErrorCode.INVALID_REQUEST]


def test_only_the_leader_may_propose() -> None:
    assert errors(propose(three(), proposal(1, 2), leader=2)) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("image", [three(fenced=2), three(shutting_down=2)])
def test_inactive_broker_is_not_accepted_into_the_isr(image: MetadataImage) -> None:
    assert errors(propose(image, proposal(1, 2))) == [ErrorCode.INELIGIBLE_REPLICA]


def test_earlier_broker_epoch_is_not_accepted_into_the_isr() -> None:
    """Rule 12: a restarted follower cannot rejoin by the progress of its earlier incarnation."""
    members = (Member(broker_id=1, broker_epoch=101), Member(broker_id=2, broker_epoch=77))
    stale = Proposal(leader_epoch=4, partition_epoch=6, new_isr_with_epochs=members)
    assert errors(propose(three(), stale)) == [ErrorCode.INELIGIBLE_REPLICA]


def test_unregistered_broker_is_not_accepted_into_the_isr() -> None:
    image = with_topic(
        running(broker(1)), partition(1, 2, isr=(1,), leader_epoch=4, partition_epoch=6)
    )
    assert errors(propose(image, proposal(1, 2))) == [ErrorCode.INELIGIBLE_REPLICA]


def test_stale_broker_epoch_fails_the_whole_request() -> None:
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=99, topics=(Topic(topic_id=TOPIC_ID, partitions=(proposal(1),)),)
    )
    decision = alter_partition(three(), request, context())
    assert (decision.records, decision.response.error_code) == ((), ErrorCode.STALE_BROKER_EPOCH)


def test_unknown_topic_id_is_an_error_of_each_partition() -> None:
    decision = propose(three(), proposal(1), proposal(1, index=1), topic_id=UUID(int=5_000))
    assert errors(decision) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


def test_second_proposal_for_a_partition_in_one_request_is_stale() -> None:
    decision = propose(three(), proposal(1, 2), proposal(1))
    assert errors(decision) == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert state_of(after(three(), decision)).isr == (1, 2)


def test_partitions_are_decided_independently() -> None:
    assert errors(propose(three(), proposal(1, index=3), proposal(1, 2))) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]


def test_completed_reassignment_may_remove_the_leader() -> None:
    """The change is committed and the error makes the broker wait for the new state."""
    image = three(isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,))
    decision = propose(image, proposal(1, 2, 3))
    assert errors(decision) == [ErrorCode.NEW_LEADER_ELECTED]
    now = state_of(after(image, decision))
    assert (now.leader, now.replicas) == (2, (2, 3))


def test_a_replica_in_an_offline_log_directory_does_not_join_the_isr() -> None:
    lost = UUID(int=77_777)
    image = three(isr=(1, 2), directories=(directory(1), directory(2), lost))
    assert errors(propose(image, proposal(1, 2, 3))) == [ErrorCode.INELIGIBLE_REPLICA]
    image = three(isr=(1, 2), directories=(directory(1), directory(2), UNASSIGNED_DIRECTORY))
    assert errors(propose(image, proposal(1, 2, 3))) == [ErrorCode.NONE]
