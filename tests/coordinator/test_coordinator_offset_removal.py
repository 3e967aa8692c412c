"""Removal of offsets and groups: OffsetDelete, DeleteGroups, expiry, deleted topics."""

from __future__ import annotations

import pytest

from penstock.coordinator.groups.table import GroupSettings
from penstock.coordinator.runtime.step import Now
from penstock.errors import ErrorCode
from penstock.ids import TopicPartition
from penstock.limits import REFUSED_STEP_RETRY_MS
from penstock.protocol.messages.delete_groups import DeleteGroupsResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from tests.coordinator.group_world import GROUP, World, state_of, topics

DAY_MS = 24 * 60 * 60 * 1_000


def deleted(world: World, topic: str = "t", partition: int = 0) -> tuple[ErrorCode, ErrorCode]:
    """Delete one offset; return the errors of the response and of the partition."""
    topic_request = OffsetDeleteRequest.Topic(
        name=topic, partitions=(OffsetDeleteRequest.Topic.Partition(partition_index=partition),)
    )
    ticket = world.new_ticket()
    request = OffsetDeleteRequest(group_id=GROUP, topics=(topic_request,))
    world.take(world.machine.offset_delete(request, ticket, world.now))
    answer = world.reply(ticket, OffsetDeleteResponse)
    codes = [p.error_code for t in answer.topics for p in t.partitions]
    return ErrorCode(answer.error_code), ErrorCode(codes[0] if codes else 0)


def group_deleted(world: World, group: str = GROUP) -> ErrorCode:
    ticket = world.new_ticket()
    world.take(world.machine.delete_group(group, ticket, world.now))
    return ErrorCode(world.reply(ticket, DeleteGroupsResponse.Result).error_code)


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    world = World()
    assert deleted(world) == (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)
    (a,) = world.stable_group("a")
    world.commit(5, a, 1)
    world.commit(6, a, 1, topic="u")
    assert deleted(world) == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert deleted(world, "u") == (ErrorCode.NONE, ErrorCode.NONE)
    assert deleted(world, "x") == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert world.offsets() == {TopicPartition("t", 0): 5}
    world.leave(a)
    assert deleted(world) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.offsets() == {}


def test_offsets_of_another_protocol_type_are_not_deleted() -> None:
    world = World()
    world.join(version=3, protocol_type="connect")
    world.wait(3_000)
    assert deleted(world)[0] == ErrorCode.NON_EMPTY_GROUP


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    world = World()
    (a,) = world.stable_group("a")
    world.commit(5, a, 1)
    assert group_deleted(world) == ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert group_deleted(world) == ErrorCode.NONE
    for _ in range(2):
        assert (world.offsets(), world.machine.list_groups()) == ({}, [])
        world.reload()
    assert group_deleted(world) == ErrorCode.GROUP_ID_NOT_FOUND
    assert group_deleted(world, "") == ErrorCode.INVALID_GROUP_ID


def test_offsets_expire_after_the_group_was_empty_for_the_retention() -> None:
    world = World()
    (a,) = world.stable_group("a")
    world.commit(5, a, 1)
    world.leave(a)
    world.wait(7 * DAY_MS - 1)
    assert world.committed() == 5
    world.wait(world.settings.offsets_retention_check_interval_ms + 1)
    assert (world.offsets(), world.machine.list_groups()) == ({}, [])
    world.reload()
    assert world.machine.list_groups() == []


def test_offsets_of_a_group_without_members_expire_by_commit_time() -> None:
    world = World()
    world.commit(5)
    world.wait(4 * DAY_MS)
    world.commit(6, topic="u")
    world.wait(4 * DAY_MS)
    assert world.offsets() == {TopicPartition("u", 0): 6}


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    world = World(
        GroupSettings(offsets_retention_ms=50_000, offsets_retention_check_interval_ms=1_000)
    )
    (a,) = world.stable_group("a")
    world.commit(5, a, 1)
    world.commit(6, a, 1, topic="u")
    for _ in range(10):
        world.wait(9_000)
        world.beat(a, 1)
    assert world.offsets() == {TopicPartition("t", 0): 5}


def test_old_versions_set_the_retention_of_an_offset() -> None:
    world = World(GroupSettings(offsets_retention_check_interval_ms=1_000))
    world.commit(5, version=4, retention_ms=60_000)
    world.commit(6, topic="u")
    world.reload()
    world.wait(61_000)
    assert world.offsets() == {TopicPartition("u", 0): 6}


def test_expiry_of_many_groups_takes_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.coordinator.offsets.removal.EXPIRY_OFFSETS_PER_STEP", 6)
    world = World(
        GroupSettings(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=2_000)
    )
    for index in range(10):
        world.commit(1, group=f"g{index}")
    step = world.take(world.machine.run_due(Now(2_000, world.wall_ms + 2_000)))
    assert len(step.records) == 6, "three groups, each with an offset"
    assert world.machine.next_deadline_ms() == 2_000
    world.wait(2_000)
    assert world.machine.list_groups() == []


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    world = World()
    world.commit(5)
    world.commit(6, topic="u")
    world.take(world.change_image(topics("t")))
    assert world.offsets() == {TopicPartition("t", 0): 5}
    world.take(world.change_image(topics("t", first_id=5_000)))
    assert world.offsets() == {}
    world.reload()
    assert world.offsets() == {}


def test_a_refused_piece_of_a_deletion_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is not reported as deleted while the log has offsets of it."""
    monkeypatch.setattr("penstock.coordinator.offsets.removal.MAX_REMOVALS_PER_STEP", 2)
    world = World()
    for partition in range(6):
        world.commit(5, partition=partition)
    ticket = world.new_ticket()
    world.take(world.machine.delete_group(GROUP, ticket, world.now))
    world.machine.run_due(world.now).undo.revert()
    assert world.machine.next_deadline_ms() == world.now_ms + REFUSED_STEP_RETRY_MS
    world.wait(REFUSED_STEP_RETRY_MS)
    assert world.reply(ticket, DeleteGroupsResponse.Result).error_code == ErrorCode.NONE
    assert world.offsets() == {}
    world.reload()
    assert (world.offsets(), world.machine.list_groups()) == ({}, [])


def test_a_refused_piece_of_the_offsets_of_a_deleted_topic_is_done_again() -> None:
    world = World()
    world.commit(6, topic="u")
    world.change_image(topics("t")).undo.revert()
    assert world.machine.next_deadline_ms() == world.now_ms + REFUSED_STEP_RETRY_MS
    world.wait(REFUSED_STEP_RETRY_MS)
    assert world.offsets() == {}


def test_a_refused_piece_of_expiry_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next interval, and not at once: what refused it may last."""
    monkeypatch.setattr("penstock.coordinator.offsets.removal.EXPIRY_OFFSETS_PER_STEP", 5)
    world = World(GroupSettings(offsets_retention_ms=1_000))
    for index in range(9):
        world.commit(1, group=f"g{index}")
        world.commit(1, group=f"g{index}", partition=1)
    world.wait(world.settings.offsets_retention_check_interval_ms - 1)
    world.now_ms += 1
    before = state_of(world.machine)
    world.machine.run_due(world.now).undo.revert()
    assert state_of(world.machine) == before
    assert world.machine.next_deadline_ms() == world.now_ms + REFUSED_STEP_RETRY_MS
    world.wait(REFUSED_STEP_RETRY_MS)
    assert world.machine.list_groups() == []
    world.reload()
    assert (world.machine.list_groups(), list(world.machine.groups.offsets)) == ([], [])
