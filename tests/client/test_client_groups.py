"""Descriptions of groups: what members put into a group is theirs, and may be anything."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.client.admin.groups import GroupAdmin, GroupDescription
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

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


@pytest.mark.parametrize(
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
