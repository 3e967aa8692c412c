"""Consumer groups: their records, their descriptions, and fencing of offsets."""

from __future__ import annotations

from penstock.coordinator.consumer.group import ConsumerGroup, MemberState
from penstock.coordinator.groups.step import decode, record
from penstock.coordinator.runtime.step import PLAIN
from penstock.errors import ErrorCode
from penstock.protocol.internal import consumer_group_records as log
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.coordinator.consumer_world import ConsumerWorld
from tests.coordinator.group_world import GROUP


def test_a_first_member_is_written_as_in_kafka() -> None:
    world = ConsumerWorld({"t": 2})
    world.consumer("a", rack="r").join()
    topic = world.image.topics["t"].id
    assert [decode(key, value) for key, value in world.log] == [
        (
            log.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"),
            log.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id="r",
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=("t",),
                subscribed_topic_regex="",
                rebalance_timeout_ms=60_000,
                server_assignor=None,
                classic_member_metadata=None,
            ),
        ),
        (
            log.ConsumerGroupMetadataKey(group_id=GROUP),
            log.ConsumerGroupMetadataValue(epoch=1, metadata_hash=world.consumers.metadata_hash),
        ),
        (
            log.ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="a"),
            log.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=(
                    log.ConsumerGroupTargetAssignmentMemberValue.TopicPartition(
                        topic_id=topic, partitions=(0, 1)
                    ),
                )
            ),
        ),
        (
            log.ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
            log.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=1, assignment_timestamp=world.wall_ms
            ),
        ),
        (
            log.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
            log.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=1,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=(
                    log.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                        topic_id=topic, partitions=(0, 1), assignment_epochs=(1, 1)
                    ),
                ),
                partitions_pending_revocation=(),
            ),
        ),
    ]


def test_a_member_that_leaves_gets_tombstones() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    before = len(world.log)
    a.leave()
    keys = [type(decode(key, value)[0]).__name__ for key, value in world.log[before:]]
    assert keys == [
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
    ]


def test_an_empty_group_can_be_deleted() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    group = world.consumers
    assert world.machine.delete_group(GROUP, world.new_ticket(), world.now).records == ()
    a.leave()
    for key in group.tombstone_keys():
        world.machine.replay(record(key, None), PLAIN)
    assert GROUP not in world.machine.groups.by_id


def test_tombstones_of_absent_records_do_nothing() -> None:
    world = ConsumerWorld()
    member_key = log.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a")
    for key in (*ConsumerGroup(GROUP).tombstone_keys(), member_key):
        world.machine.replay(record(key, None), PLAIN)
    assert world.machine.groups.by_id == {}


def test_records_before_kafka_4_3_have_no_assignment_epochs() -> None:
    world = ConsumerWorld()
    topic = world.image.topics["t"].id
    listed = (
        log.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic, partitions=(0, 1)
        ),
    )
    value = log.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5, state=77, assigned_partitions=listed
    )
    key = log.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    world.machine.replay(record(key, value), PLAIN)
    member = world.consumers.members["a"]
    assert (member.assigned, member.state) == ({topic: {0: 5, 1: 5}}, MemberState.UNKNOWN)
    assert world.consumer("a").join().error is ErrorCode.NONE


def test_a_member_in_an_unknown_state_must_abandon_its_partitions() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    value = log.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=0, state=99
    )
    key = log.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    world.machine.replay(record(key, value), PLAIN)
    assert a.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    a.beat()
    assert (a.error, len(a.owned)) == (ErrorCode.NONE, 6)


def test_sessions_restart_when_the_coordinator_moves() -> None:
    world = ConsumerWorld()
    world.consumer("a").join()
    world.wait(44_000)
    world.reload()
    world.wait(44_999)
    assert "a" in world.consumers.members
    world.wait(1)
    assert "a" not in world.consumers.members


def test_a_group_is_described() -> None:
    world = ConsumerWorld({"t": 2})
    a, _ = (
        world.consumer("a", instance="i", rack="r").join(),
        world.consumer("b", assignor="range").join(),
    )
    group = world.machine.describe_consumer_group(GROUP)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        0,
        "Reconciling",
        2,
        2,
    )
    assert group.assignor_name == "range"
    first, second = group.members
    assert (
        first.member_id,
        first.instance_id,
        first.rack_id,
        first.member_epoch,
        first.member_type,
    ) == ("a", "i", "r", a.epoch, 1)
    assert [
        (topic.topic_name, topic.partitions) for topic in first.assignment.topic_partitions
    ] == [("t", (0, 1))]
    assert [
        (topic.topic_name, topic.partitions) for topic in first.target_assignment.topic_partitions
    ] == [("t", (0,))]
    assert (
        second.client_host,
        second.subscribed_topic_names,
        second.assignment.topic_partitions,
    ) == ("/127.0.0.1", ("t",), ())


def test_only_consumer_groups_are_described() -> None:
    world = ConsumerWorld()
    assert world.machine.describe_consumer_group(GROUP).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.join(version=3)
    answer = world.machine.describe_consumer_group(GROUP)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )


def test_groups_are_listed_by_type() -> None:
    world = ConsumerWorld()
    world.consumer("a").join()
    (listed,) = world.machine.list_groups(types=["Consumer"])
    assert (listed.group_id, listed.group_state, listed.group_type, listed.protocol_type) == (
        GROUP,
        "Stable",
        "consumer",
        "consumer",
    )


def test_commits_are_fenced_by_epochs() -> None:
    world = ConsumerWorld()
    assert world.commit(1) is ErrorCode.NONE
    a = world.consumer("a").join()
    assert world.commit(2, "a", a.epoch) is ErrorCode.NONE
    assert world.commit(3, "a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(3, "a", a.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(3, "b", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(3, "a", a.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert world.committed() == 2
    a.leave()
    assert world.commit(4) is ErrorCode.NONE


def test_fetches_are_fenced_by_epochs() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()

    def fetch(member: str | None, epoch: int) -> int:
        return world.machine.offset_fetch(
            OffsetFetchRequest.Group(
                group_id=GROUP, member_id=member, member_epoch=epoch, topics=None
            )
        ).error_code

    assert fetch("a", a.epoch) == fetch(None, -1) == ErrorCode.NONE
    assert fetch("a", a.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("b", a.epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_added_partitions_and_deleted_topics_bump_the_epoch() -> None:
    world = ConsumerWorld({"t": 2, "u": 2})
    a = world.consumer("a", "t", "u").join()
    world.change_topics({"t": 5, "u": 2})
    world.settle([a])
    assert len(a.owned) == 7
    world.change_topics({"t": 5})
    world.settle([a])
    assert len(a.owned) == 5
    assert (
        world.log_lines[-1]
        == "group g: epoch 3 is stable with 1 members after 0 ms: topics changed"
    )


def test_a_subscribed_topic_is_assigned_once_it_exists() -> None:
    world = ConsumerWorld({"x": 1})
    a = world.consumer("a", "t").join()
    assert (a.epoch, a.owned) == (1, frozenset())
    world.change_topics({"x": 1, "t": 3})
    world.settle([a])
    assert len(a.owned) == 3
