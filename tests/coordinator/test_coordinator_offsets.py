"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.coordinator.runtime.step import PLAIN, Record
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_UUID, TopicPartition
from penstock.protocol.internal.classic_group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
)
from penstock.protocol.internal.coordinator_logs import GROUP_LOG
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.coordinator.consumer_world import ConsumerWorld
from tests.coordinator.group_world import GROUP, World, subscription, topics

GroupRequest = OffsetFetchRequest.Group


def fetched(
    world: World, *indexes: int, topic: str = "t", topic_id: UUID | None = None
) -> OffsetFetchResponse.Group.Topic:
    topic_request = GroupRequest.Topic(
        name=topic, topic_id=topic_id or NO_UUID, partition_indexes=indexes
    )
    version = 9 if topic_id is None else 10
    (response,) = world.machine.offset_fetch(
        GroupRequest(group_id=GROUP, topics=(topic_request,)), version=version
    ).topics
    return response


def test_a_member_commits() -> None:
    world = World()
    (a,) = world.stable_group("a")
    assert world.commit(5, a, 1, metadata="note") == ErrorCode.NONE
    (found,) = fetched(world, 0).partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 7, "note")


def test_without_members_any_client_commits() -> None:
    world = World()
    assert world.commit(5) == ErrorCode.NONE
    assert [(g.group_id, g.group_state, g.protocol_type) for g in world.machine.list_groups()] == [
        (GROUP, "Empty", "")
    ]
    world.reload()
    assert world.committed() == 5


def test_null_metadata_is_empty_metadata() -> None:
    world = World()
    world.commit(5, metadata=None)
    assert fetched(world, 0).partitions[0].metadata == ""


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        ("a", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("a", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_current_generation_commit(
    member: str, generation: int, instance: str | None, code: ErrorCode
) -> None:
    world = World()
    (a,) = world.stable_group("a")
    assert world.commit(5, a if member == "a" else member, generation, instance=instance) == code
    assert world.committed() == -1


def test_a_replaced_static_member_may_not_commit() -> None:
    world = World()
    ticket = world.join(instance="i")
    world.wait(3_000)
    former = world.joined(ticket).member_id
    world.sync(former, 1, {}, instance="i")
    world.join(instance="i")
    assert world.commit(5, former, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID


def test_members_may_commit_until_the_next_generation_begins() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    world.join(b, protocols={"range": subscription("u")})
    assert world.commit(5, a, 1) == ErrorCode.NONE
    world.join(a)
    assert world.commit(6, a, 1) == ErrorCode.ILLEGAL_GENERATION
    assert world.commit(6, a, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_in_an_earlier_epoch_commits_partitions_owned_since() -> None:
    world = ConsumerWorld({"t": 2, "u": 2})
    a, b = world.consumer("a").join(), world.consumer("b")
    b.join()
    world.settle([a, b])
    (mine,), (theirs,) = a.owned, b.owned
    assert (a.epoch, b.epoch) == (2, 2)
    assert world.commit(5, "a", 1, partition=mine[1]) == ErrorCode.NONE
    assert world.commit(6, "a", 1, partition=theirs[1]) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(6, "b", 1, partition=theirs[1]) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(6, "a", 1, topic="u") == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(6, "a", 3, partition=mine[1]) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(7, "a", 2, partition=mine[1]) == ErrorCode.NONE
    assert world.offsets() == {TopicPartition("t", mine[1]): 7}


def test_a_commit_extends_the_session() -> None:
    world = World()
    (a,) = world.stable_group("a")
    for offset in range(20):
        world.wait(9_000)
        assert world.commit(offset, a, 1) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_commit_with_a_generation_to_a_missing_group_is_refused(
    version: int, code: ErrorCode
) -> None:
    assert World().commit(5, "a", 1, version=version) == code


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_a_commit_to_a_missing_topic_is_refused(version: int, code: ErrorCode) -> None:
    world = World()
    assert world.commit(5, topic="x", version=version) == code
    assert (world.log, world.machine.list_groups()) == ([], [])


def test_oversized_metadata_is_refused() -> None:
    world = World()
    assert world.commit(4, metadata="x" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.machine.list_groups() == []
    assert world.commit(5, metadata="x" * 4_096) == ErrorCode.NONE
    assert world.commit(6, metadata="x" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.committed() == 5


def test_a_recreated_topic_has_no_offsets_of_the_former() -> None:
    world = World()
    first = world.image.topics["t"].id
    world.commit(5, version=10)
    world.reload()
    assert fetched(world, 0, topic_id=first).partitions[0].committed_offset == 5
    world.machine.groups.image = topics("t", first_id=2_000)
    assert fetched(world, 0, topic_id=UUID(int=2_000)).partitions[0].committed_offset == -1
    assert fetched(world, 0, topic_id=first).partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetched(world, 0).partitions[0].committed_offset == 5


def test_versions_with_topic_ids_leave_out_deleted_topics() -> None:
    world = World()
    world.commit(5)
    world.commit(6, topic="u")
    world.machine.groups.image = topics("t")
    response = world.machine.offset_fetch(GroupRequest(group_id=GROUP, topics=None))
    assert [(t.topic_id, t.partitions[0].committed_offset) for t in response.topics] == [
        (world.image.topics["t"].id, 5)
    ]
    assert world.offsets() == {TopicPartition("t", 0): 5, TopicPartition("u", 0): 6}


def test_an_offset_that_was_never_committed_is_not_zero() -> None:
    world = World()
    assert [p.committed_offset for p in fetched(world, 0, 3).partitions] == [-1, -1]
    assert world.machine.offset_fetch(GroupRequest(group_id="none", topics=None)).topics == ()


def test_an_open_transaction_makes_an_offset_unstable() -> None:
    world = World()
    world.commit(5)
    partition = TopicPartition("t", 0)
    committed = world.machine.groups.offsets.get(GROUP, partition)
    assert committed is not None
    world.machine.groups.offsets.pending.put(7, GROUP, partition, committed)
    response = world.machine.offset_fetch(
        GroupRequest(group_id=GROUP, topics=None), require_stable=True, version=9
    )
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert world.committed() == 5


def test_legacy_offset_records_are_replayed() -> None:
    world = World()
    key = GROUP_LOG.encode_key(LegacyOffsetCommitKey(group=GROUP, topic="t", partition=0))
    value = GROUP_LOG.encode_value(
        LegacyOffsetCommitValue(offset=5, metadata="", commit_timestamp=1)
    )
    world.machine.replay(Record(key, value), PLAIN)
    assert world.committed() == 5


def test_unknown_record_types_are_skipped_and_damaged_records_are_errors() -> None:
    machine = World().machine
    machine.replay(Record(b"\x7f\xff", b"\x00\x00"), PLAIN)
    with pytest.raises(ProtocolError):
        machine.replay(Record(b"\x00\x01\x00", b"\x00\x00"), PLAIN)


def test_a_commit_that_no_batch_can_hold_is_refused_before_its_records_are_made() -> None:
    """100,000 partitions take seconds of the event loop otherwise, only to be refused."""
    world = World()
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=(OffsetCommitRequest.Topic(name="t", partitions=(partition,) * 100_000),),
    )
    with pytest.raises(KafkaError) as refused:
        world.machine.offset_commit(request, world.caller(9), world.new_ticket(), world.now)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert world.machine.list_groups() == []
