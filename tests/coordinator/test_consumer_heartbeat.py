"""ConsumerGroupHeartbeat: joining, revoking, epochs, timeouts, leaving."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.coordinator.consumer.group import MemberState
from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode
from penstock.limits import SETTLING_HEARTBEAT_MS
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.consumer_world import IMMEDIATE, ConsumerWorld, changed
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


def test_the_first_member_gets_everything_immediately() -> None:
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
    assert world.log_lines == ["group g: epoch 1 is stable with 1 members after 0 ms: a joined"]


def test_before_version_1_the_coordinator_makes_the_member_id() -> None:
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
def test_an_invalid_request_is_refused(request_: Request, message: str) -> None:
    response = ConsumerWorld().send(request_)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_unknown_assignor_is_refused() -> None:
    response = ConsumerWorld().send(joining(server_assignor="mine"))
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (
        response.error_message
        == "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_heartbeat_to_a_missing_group_is_refused(epoch: int) -> None:
    assert (
        ConsumerWorld().send(joining(member_epoch=epoch)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    )


def test_a_full_group_refuses_new_members() -> None:
    world = ConsumerWorld(settings=replace(IMMEDIATE, consumer_max_size=1))
    a, b = world.consumer("a").join(), world.consumer("b").join()
    assert b.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.beat() is ErrorCode.NONE


def test_an_unknown_member_is_refused() -> None:
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


def test_an_idle_heartbeat_writes_nothing_and_gets_an_immediate_reply() -> None:
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


def test_a_partition_moves_only_after_its_owner_revoked_it() -> None:
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
    assert not b.owned, "a has not reported a revocation yet"
    a.take(response)
    a.beat()
    assert (a.epoch, len(a.owned)) == (2, 3)
    b.beat()
    assert len(b.owned) == 3
    assert not a.owned & b.owned
    assert world.consumers.state_name == "Stable"


def test_a_member_that_waits_for_partitions_gets_a_short_heartbeat_interval() -> None:
    world = ConsumerWorld()
    world.consumer("a").join()
    assert world.send(joining(member_id="b")).heartbeat_interval_ms == SETTLING_HEARTBEAT_MS


def test_a_member_that_reports_no_partitions_has_revoked_none() -> None:
    world = ConsumerWorld()
    a, _ = world.consumer("a").join(), world.consumer("b").join()
    a.beat()
    for _ in range(3):
        assert world.send(a.idle()).member_epoch == 1
    assert world.consumers.members["a"].revoking


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
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
    assert "a was removed: it did not revoke its partitions in time" in "".join(world.log_lines)


def test_a_member_without_heartbeats_is_removed() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    world.wait(44_999)
    b.beat()
    world.wait(1)
    assert list(world.consumers.members) == ["b"]
    world.settle([b])
    assert len(b.owned) == 6
    assert world.log_lines[-1].endswith("a was removed: its session timed out")


def test_the_previous_epoch_is_accepted_after_a_lost_response() -> None:
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


def test_the_previous_epoch_is_refused_with_partitions_that_moved() -> None:
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


def test_a_restarted_member_rejoins_under_its_id() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    epoch = world.consumers.epoch
    a.join()
    assert (a.error, len(a.owned), world.consumers.epoch) == (ErrorCode.NONE, 6, epoch)


def test_the_partitions_of_a_member_that_left_are_free() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a").join(), world.consumer("b").join()
    world.settle([a, b])
    assert a.leave() is ErrorCode.NONE
    world.settle([b])
    assert len(b.owned) == 6
    assert b.leave() is ErrorCode.NONE
    assert (world.consumers.state_name, world.consumers.owners) == ("Empty", {})
    assert world.log_lines[-1] == "group g: epoch 4 is empty after 0 ms: b left"


def test_members_that_join_within_the_interval_share_one_assignment() -> None:
    world = ConsumerWorld({"t": 6}, GroupSettings())
    a, b, c = (world.consumer(name).join() for name in "abc")
    assert (world.consumers.epoch, world.consumers.target_epoch) == (3, 1)
    assert world.consumers.state_name == "Assigning"
    world.wait(999)
    world.settle([a, b, c])
    assert world.consumers.target_epoch == 1
    world.wait(1)
    world.settle([a, b, c])
    assert (world.consumers.target_epoch, [len(consumer.owned) for consumer in (a, b, c)]) == (
        3,
        [2, 2, 2],
    )


def test_an_unsubscribed_topic_is_revoked_before_the_next_assignment() -> None:
    world = ConsumerWorld({"t": 2, "u": 2}, GroupSettings())
    a = world.consumer("a", "t", "u").join()
    a.subscribe("t")
    assert {topic for topic, _ in a.owned} == {world.image.topics["t"].id}


def test_a_full_request_gets_a_full_response() -> None:
    world = ConsumerWorld()
    a = world.consumer("a").join()
    response = world.send(
        changed(a.full, member_epoch=a.epoch, topic_partitions=a.short().topic_partitions)
    )
    assert response.assignment is not None


def test_group_configs_override_broker_configs() -> None:
    world = ConsumerWorld()
    settings = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    world.take(world.change_image(replace(world.image, configs={(32, GROUP): settings})))
    a = world.consumer("a").join()
    assert world.send(a.short()).heartbeat_interval_ms == 7_000
    world.wait(49_999)
    assert "a" in world.consumers.members
    world.wait(1)
    assert "a" not in world.consumers.members
