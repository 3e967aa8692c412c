"""Deletion and expiry of groups and offsets that open transactions would change."""

from __future__ import annotations

import pytest

from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tests.coordinator.group_world import GROUP, World, topics
from tests.coordinator.test_coordinator_sizes import no_records
from tests.coordinator.test_coordinator_transactions import EMPTY, STABLE, both, views
from tests.coordinator.transaction_world import A, B, end_txn, txn_commit


def delete_offset(world: World, partition: int = 0) -> ErrorCode:
    asked = OffsetDeleteRequest.Topic.Partition(partition_index=partition)
    request = OffsetDeleteRequest(
        group_id=GROUP, topics=(OffsetDeleteRequest.Topic(name="t", partitions=(asked,)),)
    )
    ticket = world.new_ticket()
    world.run(lambda: world.machine.offset_delete(request, ticket, world.now))
    ((result,),) = (t.partitions for t in world.reply(ticket, OffsetDeleteResponse).topics)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("has_offset", [True, False])
def test_offset_delete_deletes_pending_offsets(has_offset: bool) -> None:
    world = World()
    if has_offset:
        world.commit(1)
    txn_commit(world, A, 5)
    txn_commit(world, A, 6, partition=1)
    assert delete_offset(world) == ErrorCode.NONE
    assert views(world) == EMPTY
    end_txn(world, A)
    assert (views(world), views(world, 1)) == (EMPTY, both(6))


def test_pending_offsets_count_in_the_size_of_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(GroupSettings(max_batch_bytes=2_000), topics("t", partitions=60))
    for index in range(60):
        txn_commit(world, A, 5, partition=index)
    monkeypatch.setattr(GroupStep, "write", no_records)
    partitions = tuple(
        OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in range(60)
    )
    topic = OffsetDeleteRequest.Topic(name="t", partitions=partitions)
    request = OffsetDeleteRequest(group_id=GROUP, topics=(topic,))
    with pytest.raises(KafkaError) as refused:
        world.machine.offset_delete(request, world.new_ticket(), world.now)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("has_offset", [True, False])
def test_delete_groups_deletes_pending_offsets(has_offset: bool) -> None:
    world = World()
    if has_offset:
        world.commit(1)
    txn_commit(world, A, 5)
    txn_commit(world, A, 6, partition=1)
    ticket = world.new_ticket()
    world.run(lambda: world.machine.delete_group(GROUP, ticket, world.now))
    assert world.reply(ticket, DeleteGroupsResponse.Result).error_code == ErrorCode.NONE
    end_txn(world, A)
    for machine in (world.machine, world.replayed()):
        assert machine.list_groups() == []
        assert list(machine.groups.offsets) == list(machine.groups.offsets.pending) == []


def test_a_group_in_an_open_transaction_does_not_expire() -> None:
    world = World()
    settings = world.settings
    txn_commit(world, A, 5)
    world.wait(settings.offsets_retention_ms + 2 * settings.offsets_retention_check_interval_ms)
    assert GROUP in world.machine.groups.by_id
    end_txn(world, A, commit=False)
    world.wait(2 * settings.offsets_retention_check_interval_ms)
    assert GROUP not in world.machine.groups.by_id


def test_an_offset_with_a_pending_one_does_not_expire() -> None:
    world = World()
    settings = world.settings
    world.commit(1)
    txn_commit(world, A, 5)
    world.wait(settings.offsets_retention_ms + 2 * settings.offsets_retention_check_interval_ms)
    assert views(world)[0] == (1, STABLE)
    end_txn(world, A)
    world.wait(2 * settings.offsets_retention_check_interval_ms)
    assert world.offsets() == {}, "the committed one is as old as its record"


def test_a_committed_offset_expires_as_a_plain_one_does() -> None:
    world = World()
    settings = world.settings
    txn_commit(world, A, 5)
    end_txn(world, A)
    world.wait(settings.offsets_retention_ms - 1)
    assert views(world) == both(5)
    world.wait(settings.offsets_retention_check_interval_ms + 1)
    assert GROUP not in world.machine.groups.by_id


def test_a_deleted_topic_takes_pending_offsets_with_it() -> None:
    world = World()
    world.commit(1)
    txn_commit(world, A, 5)
    txn_commit(world, A, 6, partition=1)
    world.take(world.change_image(topics("u", first_id=1_001)))
    world.wait(1)
    end_txn(world, A)
    assert world.offsets() == {}
    assert world.replayed().groups.offsets.of_group(GROUP) == {}


def test_a_marker_before_the_removal_of_a_deleted_topic_does_not_save_its_offsets() -> None:
    world = World()
    world.commit(1)
    txn_commit(world, A, 5)
    txn_commit(world, A, 6, partition=1)
    world.change_image(topics("u", first_id=1_001)).undo.revert()
    end_txn(world, A)
    assert world.committed() == 5
    world.wait(60_000)
    assert world.offsets() == {}


def test_the_removal_of_a_deleted_topic_spares_transactions_of_the_next_one() -> None:
    """The tombstone of a former offset would delete the pending one as well."""
    world = World()
    world.commit(1)
    world.change_image(topics("u", first_id=1_001)).undo.revert()
    world.image = world.machine.groups.image = topics("t", first_id=2_000)
    txn_commit(world, A, 5)
    world.wait(60_000)
    end_txn(world, A)
    assert views(world) == both(5)


def test_a_group_that_is_being_deleted_takes_no_transactions() -> None:
    world = World(GroupSettings(max_batch_bytes=2_000), topics("t", partitions=60))
    for index in range(60):
        txn_commit(world, A, 5, partition=index)
    ticket = world.new_ticket()
    world.run(lambda: world.machine.delete_group(GROUP, ticket, world.now))
    with pytest.raises(KafkaError) as refused:
        txn_commit(world, B, 5)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    end_txn(world, A)
    world.wait(60_000)
    assert world.reply(ticket, DeleteGroupsResponse.Result).error_code == ErrorCode.NONE
    assert (world.offsets(), world.machine.list_groups()) == ({}, [])
