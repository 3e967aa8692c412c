"""Groups whose members send anything: what members put into a group is theirs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.client.admin.groups import GroupAdmin, GroupDescription
from penstock.client.consumer.coordinator import ConsumerCoordinator
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse

Group = DescribeGroupsResponse.Group
Assigned = ConsumerProtocolAssignment.AssignedPartition
READABLE = encode_consumer_protocol(
    ConsumerProtocolAssignment(assigned_partitions=(Assigned(topic="t", partitions=(0, 2)),))
)


class Coordinator:
    """A coordinator with one classic group."""

    address = "broker1:9092"

    def __init__(self, assignments: dict[str, bytes], protocol_type: str) -> None:
        self._assignments = assignments
        self._protocol_type = protocol_type

    async def send(self, _group_id: str, question: Any) -> Any:
        return await question(self)

    async def call(self, request: object, _response: type) -> DescribeGroupsResponse:
        if not isinstance(request, DescribeGroupsRequest):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "an old broker")
        members = tuple(
            Group.Member(member_id=name, member_assignment=assignment)
            for name, assignment in self._assignments.items()
        )
        group = Group(
            group_id="g", group_state="Stable", protocol_type=self._protocol_type, members=members
        )
        return DescribeGroupsResponse(groups=(group,))


def describe(assignments: dict[str, bytes], protocol_type: str = "consumer") -> GroupDescription:
    admin = GroupAdmin(cast(Any, None))
    admin.coordinators = cast(Any, Coordinator(assignments, protocol_type))
    return asyncio.run(admin.describe_group("g"))


unreadable_bytes = pytest.mark.parametrize(
    "unreadable",
    [
        b"\x00",
        b"\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff junk",
        READABLE[:-5],
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00\xff\xff\xff\xff",
    ],
    ids=["short", "negative version", "too many elements", "cut off", "not UTF-8"],
)


@unreadable_bytes
def test_a_member_with_an_unreadable_assignment_does_not_hide_the_others(
    unreadable: bytes,
) -> None:
    """SyncGroup takes any bytes, as in Kafka."""
    foreign, ours = describe({"foreign": unreadable, "ours": READABLE}).members
    assert (foreign.assignment, ours.assignment) == (
        (),
        (TopicPartition("t", 0), TopicPartition("t", 2)),
    )
    assert "ConsumerProtocolAssignment" in foreign.assignment_error
    assert ours.assignment_error == ""


@pytest.mark.parametrize(("protocol_type", "assignment"), [("consumer", b""), ("connect", b"\xff")])
def test_a_member_may_have_no_assignment_of_partitions(
    protocol_type: str, assignment: bytes
) -> None:
    (member,) = describe({"m": assignment}, protocol_type).members
    assert (member.assignment, member.assignment_error) == ((), "")


class Rebalance:
    """A coordinator that passes on what members send: `subscription` of another member to the
    leader, `assignment` of the leader to the members."""

    def __init__(self, leader: str, subscription: bytes, assignment: bytes) -> None:
        self.cluster = SimpleNamespace(request_timeout_s=1.0, retry=self._retry, topic=self._topic)
        self._leader = leader
        self.subscription = subscription
        self.assignment = assignment

    async def _retry(self, attempt: Any, timeout_s: float) -> Any:
        assert timeout_s > 0
        return await attempt()

    async def _topic(self, _name: str) -> Any:
        return SimpleNamespace(partitions=range(3))

    async def send_once(self, _group_id: str, send: Any) -> Any:
        return await send(self)

    async def call(self, request: object, _response: type, **_options: Any) -> object:
        if isinstance(request, JoinGroupRequest):
            other = JoinGroupResponse.Member(member_id="other", metadata=self.subscription)
            return JoinGroupResponse(leader=self._leader, member_id="ours", members=(other,))
        return SyncGroupResponse(assignment=self.assignment)


@pytest.mark.parametrize(
    ("leader", "sender"), [("ours", "member 'other'"), ("other", "the leader")]
)
@unreadable_bytes
def test_a_consumer_that_gets_unreadable_bytes_raises_an_error_and_joins_again(
    leader: str, sender: str, unreadable: bytes
) -> None:
    """Kafka's consumer raises a SchemaException from poll."""
    rebalance = Rebalance(leader, unreadable, unreadable)
    coordinator = ConsumerCoordinator(cast(Any, rebalance), "g", ("t",))

    async def join() -> None:
        with pytest.raises(KafkaError, match=f"group g: what {sender} of the group sent") as error:
            await coordinator.join()
        assert error.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert coordinator.rejoin_needed
        rebalance.assignment = READABLE
        rebalance.subscription = encode_consumer_protocol(
            ConsumerProtocolSubscription(topics=("t",))
        )
        assert await coordinator.join() == [TopicPartition("t", 0), TopicPartition("t", 2)]
        assert not coordinator.rejoin_needed

    asyncio.run(join())
