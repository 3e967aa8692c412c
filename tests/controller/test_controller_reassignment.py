"""AlterPartitionReassignments and ListPartitionReassignments: how a partition moves to other
replicas, completes and returns (KIP-455)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from penstock.controller.brokers.fencing import fence_broker, unfence_broker, unregister_broker
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.controller.partitions.change_builder import RECOVERING
from penstock.controller.partitions.reassignment import (
    alter_partition_reassignments,
    is_reassigning,
    listed_response,
    listed_slices,
    merged,
    original_replicas,
    slices_of,
    target_replicas,
)
from penstock.controller.topics.create_partitions import create_partitions
from penstock.controller.topics.delete import delete_topics
from penstock.errors import ErrorCode
from penstock.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY, MetadataImage, PartitionState
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import (
    TOPIC_ID,
    after,
    broker,
    cluster,
    context,
    directory,
    partition,
    running,
    state_of,
    with_topic,
)

FIVE = tuple(broker(broker_id) for broker_id in range(1, 6))
Topic = AlterPartitionReassignmentsRequest.Topic


class Result(NamedTuple):
    image: MetadataImage
    code: int
    message: str | None
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> PartitionState:
        return state_of(self.image)


def reassign(
    image: MetadataImage,
    *target: int,
    cancel: bool = False,
    index: int = 0,
    name: str = "t",
    allow_factor_change: bool = True,
) -> Result:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change,
        topics=(
            Topic(
                name=name,
                partitions=(
                    Topic.Partition(partition_index=index, replicas=None if cancel else target),
                ),
            ),
        ),
    )
    decision = alter_partition_reassignments(image, request, context())
    [topic] = decision.response.responses
    [result] = topic.partitions
    assert (topic.name, result.partition_index) == (name, index)
    return Result(
        after(image, decision), result.error_code, result.error_message, decision.warnings
    )


def cancel(image: MetadataImage) -> Result:
    return reassign(image, cancel=True)


def in_sync(image: MetadataImage, *isr: int) -> tuple[MetadataImage, int]:
    """Let the leader propose an ISR. Return the image after it, and the error."""
    state = state_of(image)
    partition_type = AlterPartitionRequest.Topic.Partition
    request = AlterPartitionRequest(
        broker_id=state.leader,
        broker_epoch=image.brokers[state.leader].epoch,
        topics=(
            AlterPartitionRequest.Topic(
                topic_id=TOPIC_ID,
                partitions=(
                    partition_type(
                        partition_index=0,
                        leader_epoch=state.leader_epoch,
                        partition_epoch=state.partition_epoch,
                        new_isr_with_epochs=tuple(
                            partition_type.NewIsrWithEpoch(
                                broker_id=member, broker_epoch=image.brokers[member].epoch
                            )
                            for member in isr
                        ),
                    ),
                ),
            ),
        ),
    )
    decision = alter_partition(image, request, context())
    return after(image, decision), decision.response.topics[0].partitions[0].error_code


def test_a_reassignment_adds_the_new_replicas_and_keeps_the_old_ones() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    result = reassign(image, 3, 4, 5)
    assert (result.code, result.message) == (ErrorCode.NONE, None)
    state = result.state
    assert state.replicas == (3, 4, 5, 1, 2)
    assert (state.adding_replicas, state.removing_replicas) == ((4, 5), (1, 2))
    # Nothing else changes: the leader goes on, and followers are not fenced.
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1, 2, 3))


def test_a_new_replica_has_a_directory_if_its_broker_has_only_one() -> None:
    image = with_topic(cluster(broker(1), broker(2), broker(3, directories=2)), partition(1))
    state = reassign(image, 1, 2, 3).state
    assert state.directories == (directory(1), directory(2), UNASSIGNED_DIRECTORY)


def test_it_completes_when_all_target_replicas_are_in_sync_and_moves_the_leader() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2, 3)), 3, 4, 5).image
    image, code = in_sync(image, 3, 4, 1, 2)
    assert code == ErrorCode.NONE
    assert is_reassigning(state_of(image))
    image, code = in_sync(image, 3, 4, 5, 1, 2)
    # The change is committed; the former leader must wait for the new state.
    assert code == ErrorCode.NEW_LEADER_ELECTED
    state = state_of(image)
    assert (state.replicas, state.isr, state.leader) == ((3, 4, 5), (3, 4, 5), 3)
    assert (state.adding_replicas, state.removing_replicas) == ((), ())
    assert state.directories == (directory(3), directory(4), directory(5))
    assert state.leader_epoch == 1


def test_a_leader_that_remains_gets_a_new_epoch_that_fences_the_removed_replicas() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 1, 3).image
    image, code = in_sync(image, 1, 3, 2)
    assert code == ErrorCode.NONE
    state = state_of(image)
    assert (state.replicas, state.leader, state.leader_epoch) == ((1, 3), 1, 1)


def test_removing_replicas_that_are_not_needed_completes_immediately() -> None:
    state = reassign(with_topic(cluster(*FIVE), partition(1, 2, 3)), 2, 3).state
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert not is_reassigning(state)


def test_another_order_of_the_same_replicas_moves_no_leader() -> None:
    state = reassign(with_topic(cluster(*FIVE), partition(1, 2, 3)), 3, 1, 2).state
    assert (state.replicas, state.leader, state.leader_epoch) == ((3, 1, 2), 1, 0)
    assert state.directories == (directory(3), directory(1), directory(2))
    assert not is_reassigning(state)


def test_the_current_replicas_change_nothing() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    result = reassign(image, 1, 2, 3)
    assert (result.code, result.image.offset) == (ErrorCode.NONE, image.offset)


def test_dead_replicas_are_replaced() -> None:
    """The brokers that are removed need not be registered any more."""
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    decision = unregister_broker(image, UnregisterBrokerRequest(broker_id=3), context())
    image = reassign(after(image, decision), 1, 2, 4).image
    image, code = in_sync(image, 1, 2, 4)
    assert code == ErrorCode.NONE
    assert state_of(image).replicas == (1, 2, 4)


INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ((), INVALID, "The manual partition assignment includes an empty replica list."),
        (
            (1, 9),
            INVALID,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            (1, -1),
            INVALID,
            "The manual partition assignment includes broker -1, but no such broker is registered.",
        ),
        (
            (4, 1, 4),
            INVALID,
            "The manual partition assignment includes the broker 4 more than once.",
        ),
    ],
)
def test_an_invalid_assignment_is_refused(
    target: tuple[int, ...], code: ErrorCode, message: str
) -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    result = reassign(image, *target)
    assert (result.code, result.message) == (code, message)
    assert result.image.offset == image.offset


def test_topics_and_partitions_that_do_not_exist_are_refused() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = reassign(image, 1, name="x")
    assert (result.code, result.message) == (unknown, "Unable to find a topic named x.")
    result = reassign(image, 1, index=7)
    assert (result.code, result.message) == (unknown, "Unable to find partition t:7.")


def test_another_replication_factor_is_refused_if_the_request_says_so() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2, 3))
    result = reassign(image, 1, 2, allow_factor_change=False)
    assert (result.code, result.message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 2",
    )
    assert reassign(image, 1, 2, 5, allow_factor_change=False).code == ErrorCode.NONE


def test_the_replication_factor_of_a_moving_partition_is_that_of_its_target() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 3, 4).image
    assert len(state_of(image).replicas) == 4
    assert reassign(image, 4, 5, allow_factor_change=False).code == ErrorCode.NONE
    assert reassign(image, 5, allow_factor_change=False).code == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )


# Cancellation


def test_a_cancellation_restores_the_replicas_and_their_order() -> None:
    image = with_topic(cluster(*FIVE), partition(3, 1, 2))
    image = reassign(image, 4, 5).image
    image, _code = in_sync(image, 4, 3, 1, 2)
    result = cancel(image)
    assert result.code == ErrorCode.NONE
    state = result.state
    assert (state.replicas, state.isr, state.leader) == ((3, 1, 2), (3, 1, 2), 3)
    assert state.directories == (directory(3), directory(1), directory(2))
    assert not is_reassigning(state)
    # The replicas that were added are fenced.
    assert state.leader_epoch == 1


def test_there_must_be_a_reassignment_to_cancel() -> None:
    result = cancel(with_topic(cluster(*FIVE), partition(1, 2, 3)))
    assert (result.code, result.message) == (
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        "No partition reassignment is in progress.",
    )


def test_a_cancellation_moves_the_leader_off_a_replica_that_was_added() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 3, 4).image
    image, _code = in_sync(image, 1, 2, 3)
    # An election may make a new replica the leader before the reassignment is complete.
    state = replace(state_of(image), leader=3, isr=(3, 2))
    image = with_topic(cluster(*FIVE), state)
    result = cancel(image)
    assert (result.state.leader, result.state.isr) == (2, (2,))


def only_new_in_sync(unclean: str, *, elr: tuple[int, ...] = ()) -> MetadataImage:
    state = partition(3, 1, 2, isr=(3,), adding_replicas=(3,), removing_replicas=(1,))
    return with_topic(
        running(*FIVE),
        replace(state, eligible_leader_replicas=elr),
        unclean_leader_election_enable=unclean,
        min_insync_replicas="2",
    )


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    result = cancel(only_new_in_sync("false"))
    assert (result.code, result.message) == (
        INVALID,
        "Unable to revert partition assignment for t:0 because it would require an unclean "
        "leader election.",
    )


def test_it_is_accepted_with_a_warning_where_unclean_elections_are_allowed() -> None:
    result = cancel(only_new_in_sync("true"))
    assert result.code == ErrorCode.NONE
    state = result.state
    assert (state.replicas, state.isr, state.leader) == ((1, 2), (1,), 1)
    assert state.leader_recovery_state == RECOVERING
    [warning] = result.warnings
    assert "t-0" in warning
    assert "lost" in warning


def test_an_eligible_leader_replica_makes_it_clean() -> None:
    result = cancel(only_new_in_sync("false", elr=(2,)))
    assert (result.code, result.warnings) == (ErrorCode.NONE, ())
    state = result.state
    assert (state.replicas, state.isr, state.leader) == ((1, 2), (2,), 2)
    assert state.eligible_leader_replicas == ()


# One reassignment after another


def test_a_cancellation_returns_to_the_replicas_before_the_first_reassignment() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2))
    image = reassign(image, 2, 3).image
    image = reassign(image, 2, 4).image
    state = state_of(image)
    # Broker 3 is to be removed, and was no replica before.
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
        (2, 4, 3, 1),
        (3, 4),
        (1, 3),
    )
    assert sorted(cancel(image).state.replicas) == [1, 2]


def test_a_replica_that_is_a_target_again_is_not_removed() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2, 3)), 1, 2, 4).image
    image = reassign(image, 1, 2, 3, 4).image
    image, _code = in_sync(image, 1, 2, 3, 4)
    state = state_of(image)
    assert (state.replicas, is_reassigning(state)) == ((1, 2, 3, 4), False)


def test_a_reassignment_back_to_the_original_replicas_completes_at_once() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2, 3)), 3, 4, 5).image
    state = reassign(image, 1, 2, 3).state
    assert (state.replicas, is_reassigning(state)) == ((1, 2, 3), False)


def test_a_request_may_name_a_partition_twice() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2))
    partitions = tuple(
        Topic.Partition(partition_index=0, replicas=target) for target in ((1, 3), None, (1, 4))
    )
    request = AlterPartitionReassignmentsRequest(topics=(Topic(name="t", partitions=partitions),))
    decision = alter_partition_reassignments(image, request, context())
    codes = [result.error_code for result in decision.response.responses[0].partitions]
    assert codes == [ErrorCode.NONE] * 3
    assert state_of(after(image, decision)).adding_replicas == (4,)


# Other events while a partition moves


def test_fencing_a_replica_that_is_removed_lets_the_others_complete() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 2, 3).image
    state = replace(state_of(image), isr=(2, 3, 1), leader=1)
    image = with_topic(cluster(*FIVE), state)
    image = after(image, fence_broker(image, 1, context()))
    state = state_of(image)
    assert (state.replicas, state.isr, state.leader) == ((2, 3), (2, 3), 2)
    assert not is_reassigning(state)


def test_fencing_a_new_replica_leaves_the_reassignment_open() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 3, 4).image
    image, _code = in_sync(image, 1, 2, 3)
    image = after(image, fence_broker(image, 3, context()))
    state = state_of(image)
    assert (state.isr, state.leader, is_reassigning(state)) == ((1, 2), 1, True)


def test_a_removed_replica_is_never_eligible_to_lead() -> None:
    image = with_topic(
        running(*FIVE),
        partition(1, 2, isr=(2,), eligible_leader_replicas=(1,)),
        min_insync_replicas="2",
    )
    state = reassign(image, 2).state
    assert (state.replicas, state.isr, state.eligible_leader_replicas) == ((2,), (2,), ())


def test_a_leaderless_partition_remembers_no_last_leader_that_never_was() -> None:
    image = with_topic(
        running(broker(1, fenced=True), broker(2, fenced=True), broker(3, fenced=True)),
        partition(1, 2, 3, isr=(), leader=NO_LEADER, adding_replicas=(3,)),
        unclean_leader_election_enable="true",
    )
    state = cancel(image).state
    assert (state.leader, state.last_known_elr, state.replicas) == (NO_LEADER, (), (1, 2))


def test_a_topic_that_moves_can_be_deleted() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 3, 4).image
    request = DeleteTopicsRequest(topics=(DeleteTopicsRequest.Topic(name="t"),))
    assert not after(image, delete_topics(image, request, context())).topics


def test_partitions_that_are_added_have_the_factor_of_the_target() -> None:
    image = reassign(with_topic(cluster(*FIVE), partition(1, 2)), 3, 4).image
    request = CreatePartitionsRequest(
        topics=(CreatePartitionsRequest.Topic(name="t", count=2, assignments=None),)
    )
    image = after(image, create_partitions(image, request, context()))
    assert len(state_of(image, 1).replicas) == 2


# Many partitions


def test_a_large_request_is_divided_and_its_response_is_whole() -> None:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=7,
        allow_replication_factor_change=False,
        topics=tuple(
            Topic(
                name=name,
                partitions=tuple(
                    Topic.Partition(partition_index=index, replicas=(1,)) for index in range(count)
                ),
            )
            for name, count in (("a", 5), ("b", 1), ("c", 4))
        ),
    )
    slices = slices_of(request, 3)
    sizes = [sum(len(topic.partitions) for topic in each.topics) for each in slices]
    assert sizes == [3, 3, 3, 1]
    assert all(not each.allow_replication_factor_change for each in slices)
    responses = [
        alter_partition_reassignments(cluster(*FIVE), each, context()).response for each in slices
    ]
    response = merged(responses, allow_factor_change=False)
    assert [
        (topic.name, [result.partition_index for result in topic.partitions])
        for topic in response.responses
    ] == [("a", [0, 1, 2, 3, 4]), ("b", [0]), ("c", [0, 1, 2, 3])]
    assert len(slices_of(AlterPartitionReassignmentsRequest())) == 1


# Listing


def listed(
    image: MetadataImage, requested: dict[str, tuple[int, ...]] | None = None
) -> dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    topics = None
    if requested is not None:
        topics = tuple(
            ListPartitionReassignmentsRequest.Topic(name=name, partition_indexes=indexes)
            for name, indexes in requested.items()
        )
    request = ListPartitionReassignmentsRequest(topics=topics)
    parts = [part for part in listed_slices(image, request, 2) if part is not None]
    return {
        (topic.name, found.partition_index): (
            found.replicas,
            found.adding_replicas,
            found.removing_replicas,
        )
        for topic in listed_response(parts).topics
        for found in topic.partitions
    }


def test_only_moving_partitions_are_listed() -> None:
    image = with_topic(cluster(*FIVE), partition(1, 2), partition(1, 2))
    image = with_topic(image, partition(1), name="u", topic_id=UUID(int=901))
    assert listed(image) == {}
    image = reassign(image, 3, 2, index=1).image
    moving = {("t", 1): ((3, 2, 1), (3,), (1,))}
    assert listed(image) == moving
    assert listed(image, {"t": (0, 1, 8), "u": (0,), "x": (0,)}) == moving
    assert listed(image, {"u": (0,)}) == {}
    assert listed(image, {}) == {}


def test_a_large_topic_is_listed_in_slices() -> None:
    image = with_topic(cluster(*FIVE), *(partition(1, 2) for _index in range(5)))
    for index in (0, 3, 4):
        image = reassign(image, 3, 2, index=index).image
    slices = list(listed_slices(image, ListPartitionReassignmentsRequest(topics=None), 2))
    assert [None if part is None else len(part.partitions) for part in slices] == [
        1,
        None,
        1,
        None,
        1,
    ]
    [topic] = listed_response(part for part in slices if part is not None).topics
    assert [found.partition_index for found in topic.partitions] == [0, 3, 4]


# Histories


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_keep_the_laws(seed: int) -> None:
    """Reassignments, cancellations, ISR changes and failures in random order. What must hold: every
    in-sync, eligible, added or removed replica is a replica; each replica has a directory; a
    completed reassignment has exactly its target, a cancelled one its original replicas; and the
    members of the ISR after a change were in the ISR that was proposed, so that each has every
    committed record."""
    rng = Random(seed)
    image = with_topic(running(*FIVE), partition(1, 2, 3), min_insync_replicas="2")
    original, target = {1, 2, 3}, {1, 2, 3}
    for _step in range(120):
        state = state_of(image)
        kind = rng.choice(["start", "cancel", "isr", "isr", "isr", "fence", "unfence"])
        proposed = set(state.isr)
        if kind == "start":
            replicas = rng.sample(range(1, 6), rng.randint(1, 4))
            if not is_reassigning(state):
                original = set(state.replicas)
            result = reassign(image, *replicas)
            assert result.code == ErrorCode.NONE
            image, target = result.image, set(replicas)
        elif kind == "cancel":
            result = cancel(image)
            if result.code == ErrorCode.NONE:
                image = result.image
                assert set(state_of(image).replicas) == original
                target = original
        elif kind == "isr" and state.leader != NO_LEADER:
            active = [r for r in state.replicas if image.brokers[r].is_active]
            isr = {state.leader, *rng.sample(active, rng.randint(0, len(active)))}
            proposed |= isr
            image, _code = in_sync(image, *(r for r in state.replicas if r in isr))
        elif kind == "fence":
            image = after(image, fence_broker(image, rng.randint(1, 5), context()))
        elif kind == "unfence":
            image = after(image, unfence_broker(image, rng.randint(1, 5), context()))
        changed = state_of(image)
        members = {
            *changed.isr,
            *changed.eligible_leader_replicas,
            *changed.adding_replicas,
            *changed.removing_replicas,
        }
        assert members <= set(changed.replicas)
        assert len(set(changed.replicas)) == len(changed.replicas)
        assert len(changed.directories) == len(changed.replicas)
        assert not set(changed.isr) & set(changed.eligible_leader_replicas)
        if changed.leader != NO_LEADER:
            assert changed.leader in changed.isr
            assert image.brokers[changed.leader].is_active
        eligible = proposed | set(state.eligible_leader_replicas)
        assert set(changed.isr) <= eligible, (kind, state, changed)
        if is_reassigning(changed):
            assert set(target_replicas(changed)) == target
            assert set(original_replicas(changed)) == original
            assert not target <= set(changed.isr)
        else:
            assert set(changed.replicas) == target
        if not set(state.replicas) <= set(changed.replicas):
            assert changed.leader_epoch > state.leader_epoch
