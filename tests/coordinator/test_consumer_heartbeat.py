"""What ConsumerGroupHeartbeat decides, one sentence a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.coordinator.consumer.group import MemberState
from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode
from penstock.limits import SETTLING_HEARTBEAT_MS
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.consumer_world import AT_ONCE, ConsumerWorld, changed
from tests.coordinator.group_world import GROUP

Request = ConsumerGroupHeartbeatRequest


def joining(**changes: object) -> Request:
    request = Request(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    return changed(request, **changes)


def test_the_first_member_gets_everything_at_once() -> None:
    world = ConsumerWorld({"t": 6})
    response = world.send(joining())
    assert (
        response.error_code,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
    ) == (0, "a", 1, 5_000)
    assert response.assignment is not None
    assert [topic.partitions for topic in response.assignment.topic_partitions] == [
        (0, 1, 2, 3, 4, 5)
    ]
    assert world.consumers.state_name == "Stable"
    assert world.told == ["group g: epoch 1 is stable with 1 members after 0 ms: a joined"]


def test_before_version_1_the_coordinator_makes_the_id() -> None:
    response = ConsumerWorld().send(joining(member_id=""), version=0)
    assert response.member_id == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (joining(member_id=""), "MemberId can't be empty."),
        (joining(group_id=" "), "GroupId can't be empty."),
        (joining(instance_id=""), "InstanceId can't be empty."),
        (joining(rack_id=""), "RackId can't be empty."),
        (joining(rebalance_timeout_ms=-1), "RebalanceTimeoutMs must be provided in first request."),
        (joining(topic_partitions=None), "TopicPartitions must be empty when (re-)joining."),
        (
            joining(topic_partitions=(Request.TopicPartition(partitions=(1,)),)),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            joining(subscribed_topic_names=None),
            (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            ),
        ),
        (joining(member_epoch=-3), "MemberEpoch is invalid."),
        (joining(member_epoch=-2), "InstanceId can't be null."),
    ],
)
def test_a_request_must_make_sense(request_: Request, message: str) -> None:
    response = ConsumerWorld().send(request_)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_assignor_must_be_known() -> None:
    response = ConsumerWorld().send(joining(server_assignor="mine"))
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (
        response.error_message
        == "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize("epoch", [-1, 1])
def test_who_is_in_no_group_is_told_so(epoch: int) -> None:
    assert (
        ConsumerWorld().send(joining(member_epoch=epoch)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    )


def test_a_group_has_room_for_so_many() -> None:
    world = ConsumerWorld(settings=replace(AT_ONCE, consumer_max_size=1))
    a, b = world.consumer("a").join(), world.consumer("b").join()
    assert b.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat() is ErrorCode.NONE


def test_unknown_members_are_told_so() -> None:
    world = ConsumerWorld()
    world.consumer("a").join()
    assert (
        world.send(joining(member_id="b", member_epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert (
        world.send(joining(member_id="b", member_epoch=-1)).error_code
        == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert (
        world.send(joining(member_id="b", member_epoch=1, instance_id="i")).error_code
        == ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_an_idle_heartbeat_changes_nothing_and_is_answered_at_once() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    log = len(world.log)
    step = world.machine.consumer_group_heartbeat(
        a.idle(), world.caller(1), world.new_ticket(), world.now
    )
    assert step.immediate
    assert step.records == ()
    assert world.send(a.idle()).assignment is None
    assert len(world.log) == log


def test_partitions_pass_on_only_when_they_were_given_up() -> None:
    world = ConsumerWorld({"t": 6})
    a, b = world.consumer("a").join(), world.consumer("b").join()
    assert (len(a.owned), len(b.owned)) == (6, 0)
    assert (b.epoch, world.consumers.members["b"].state) == (2, MemberState.UNRELEASED_PARTITIONS)
    response = world.send(a.short())
    assert (response.member_epoch, world.consumers.members["a"].state) == (
        1,
        MemberState.UNREVOKED_PARTITIONS,
    )
    b.beat()
    assert not b.owned, "a has not said yet that it gave up anything"
    a.take(response)
    a.beat()
    assert (a.epoch, len(a.owned)) == (2, 3)
    b.beat()
    assert len(b.owned) == 3
    assert not a.owned & b.owned
    assert world.consumers.state_name == "Stable"


def test_while_it_gets_nowhere_a_member_is_asked_to_come_back_soon() -> None:
    world = ConsumerWorld()
    world.consumer("a").join()
    assert world.send(joining(member_id="b")).heartbeat_interval_ms == SETTLING_HEARTBEAT_MS


def test_a_member_that_says_nothing_of_its_partitions_has_given_up_none() -> None:
    world = ConsumerWorld()
    a, _ = world.consumer("a").join(), world.consumer("b").join()
    a.beat()
    for _ in range(3):
        assert world.send(a.idle()).member_epoch == 1
    assert world.consumers.members["a"].revoking


def test_a_member_that_does_not_give_up_is_fenced() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a", rebalance_ms=10_000).join(), world.consumer("b").join()
    for _ in range(9):
        world.wait(1_000)
        world.send(a.idle())
        b.beat()
    assert "a" in world.consumers.members
    world.wait(2_000)
    world.send(a.idle())
    b.beat()
    b.beat()
    assert len(b.owned) == 6
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert "a was removed: it did not revoke its partitions in time" in "".join(world.told)


def test_a_member_that_is_not_heard_of_is_gone() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    world.wait(44_999)
    b.beat()
    world.wait(1)
    assert list(world.consumers.members) == ["b"]
    world.settle([b])
    assert len(b.owned) == 6
    assert world.told[-1].endswith("a was removed: its session timed out")


def test_the_epoch_before_will_do_once_for_a_lost_answer() -> None:
    world = ConsumerWorld({"t": 2})
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a])
    lost = b.short()
    world.send(lost)
    assert world.send(lost).error_code == ErrorCode.NONE
    assert world.send(changed(lost, member_epoch=1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert world.send(changed(lost, member_epoch=9)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    a.beat()
    assert a.beat() is ErrorCode.NONE


def test_the_epoch_before_will_not_do_for_partitions_that_have_gone() -> None:
    world = ConsumerWorld({"t": 2})
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    stale = changed(
        a.short(),
        member_epoch=1,
        topic_partitions=(
            Request.TopicPartition(topic_id=world.image.topics["t"].id, partitions=(0, 1)),
        ),
    )
    assert world.send(stale).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_restarted_member_may_join_again_under_its_id() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    epoch = world.consumers.epoch
    a.join()
    assert (a.error, len(a.owned), world.consumers.epoch) == (ErrorCode.NONE, 6, epoch)


def test_who_leaves_makes_room() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    assert a.leave() is ErrorCode.NONE
    world.settle([b])
    assert len(b.owned) == 6
    assert b.leave() is ErrorCode.NONE
    assert (world.consumers.state_name, world.consumers.owners) == ("Empty", {})
    assert world.told[-1] == "group g: epoch 4 is empty after 0 ms: b left"


def test_several_members_that_come_together_are_one_assignment() -> None:
    world = ConsumerWorld({"t": 6}, GroupSettings())
    a, b, c = (world.consumer(name).join() for name in "abc")
    assert (world.consumers.epoch, world.consumers.target_epoch) == (3, 1)
    assert world.consumers.state_name == "Assigning"
    world.wait(999)
    world.settle([a, b, c])
    assert world.consumers.target_epoch == 1
    world.wait(1)
    world.settle([a, b, c])
    assert (world.consumers.target_epoch, [len(one.owned) for one in (a, b, c)]) == (3, [2, 2, 2])


def test_a_topic_that_is_given_up_stops_before_the_next_assignment() -> None:
    world = ConsumerWorld({"t": 2, "u": 2}, GroupSettings())
    a = world.consumer("a", "t", "u").join()
    a.subscribe("t")
    assert {topic for topic, _ in a.owned} == {world.image.topics["t"].id}


def test_a_member_is_told_all_when_it_says_all() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    response = world.send(
        changed(a.full, member_epoch=a.epoch, topic_partitions=a.short().topic_partitions)
    )
    assert response.assignment is not None


def test_settings_of_the_group_come_before_those_of_the_node() -> None:
    world = ConsumerWorld()
    settings = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    world.image = replace(world.image, configs={(32, GROUP): settings})
    world.take(world.machine.image_changed(world.image, world.now))
    a = world.consumer("a").join()
    assert world.send(a.short()).heartbeat_interval_ms == 7_000
    world.wait(49_999)
    assert "a" in world.consumers.members
    world.wait(1)
    assert "a" not in world.consumers.members
