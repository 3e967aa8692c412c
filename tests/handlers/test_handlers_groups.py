"""The APIs of groups, and what they say to bad input: Kafka's codes, and the group is as it was
before."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.ids import NO_UUID
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.handlers.fake_node import FakeNode, answer, run
from tests.handlers.group_members import (
    COMMIT,
    FETCH,
    FIND,
    GROUP,
    JOIN,
    LEAVE,
    SETTINGS,
    commit,
    commit_request,
    committed,
    heartbeat,
    join,
    join_request,
    leave,
    offsets_partition,
    sync,
)

DESCRIBE, LIST, DELETE_GROUPS, DELETE_OFFSETS = 15, 16, 42, 47
Test = Callable[[FakeNode], Coroutine[Any, Any, None]]


def with_groups(test: Test) -> None:
    async def main(node: FakeNode) -> None:
        node.create("orders", 3)
        await offsets_partition(node)
        await test(node)

    run(main, **SETTINGS)


# Who coordinates


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_in_every_version(version: int) -> None:
    async def main(node: FakeNode) -> None:
        request = (
            FindCoordinatorRequest(key="a")
            if version < 4
            else FindCoordinatorRequest(coordinator_keys=("a", "b"))
        )
        response = await answer(node, FIND, version, request)
        found = [response] if version < 4 else response.coordinators
        assert [(one.node_id, one.host, one.port, one.error_code) for one in found] == [
            (1, "10.0.0.1", 9092, 0)
        ] * len(found)
        assert len(found) == (1 if version < 4 else 2)

    run(main, **SETTINGS)


def test_a_client_that_wants_to_read_the_topic_of_offsets_has_it_made_as_coordinators_need_it() -> (
    None
):
    async def main(node: FakeNode) -> None:
        asked = MetadataRequest(
            topics=(MetadataRequest.Topic(name="__consumer_offsets"),),
            allow_auto_topic_creation=True,
        )
        (topic,) = (await answer(node, 3, 13, asked)).topics
        assert (topic.error_code, len(topic.partitions), topic.is_internal) == (
            ErrorCode.NONE,
            7,
            True,
        )
        assert node.metadata.topic_config("__consumer_offsets").compacts
        assert not node.metadata.topic_config("__consumer_offsets").deletes

    run(main, **{**SETTINGS, "offsets.topic.num.partitions": "7"})


def test_a_topic_that_is_new_can_be_committed_to_and_asked_for_by_its_id_at_once() -> None:
    async def test(node: FakeNode) -> None:
        node.create("new")
        topic_id = node.image.topics["new"].id
        wanted = OffsetFetchRequest.Group.Topic(topic_id=topic_id, partition_indexes=(0,))
        response = await answer(
            node,
            FETCH,
            10,
            OffsetFetchRequest(
                groups=(OffsetFetchRequest.Group(group_id=GROUP, topics=(wanted,)),)
            ),
        )
        (told,) = response.groups[0].topics[0].partitions
        assert (told.committed_offset, told.error_code) == (-1, ErrorCode.NONE)
        node.create("newer")
        assert await commit(node, 5, topic="newer") == ErrorCode.NONE

    with_groups(test)


def test_without_a_leader_there_is_no_coordinator() -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(node, FIND, 3, FindCoordinatorRequest(key="a"))
        assert (response.error_code, response.node_id, response.host, response.port) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            -1,
            "",
            -1,
        )

    run(main, **{**SETTINGS, "offsets.topic.replication.factor": "3"})


@pytest.mark.parametrize("key_type", [1, 2, 9])
def test_other_coordinators_are_not_there(key_type: int) -> None:
    async def main(node: FakeNode) -> None:
        response = await answer(
            node, FIND, 6, FindCoordinatorRequest(key_type=key_type, coordinator_keys=("a",))
        )
        assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST

    run(main, **SETTINGS)


# Members


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": (JoinGroupRequest.Protocol(name="range", metadata=bytes(2_000_000)),)},
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": (JoinGroupRequest.Protocol(name="other", metadata=b""),)},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
    ],
)
def test_a_join_that_does_not_fit_is_refused_and_the_group_goes_on(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert (await answer(node, JOIN, 9, join_request(**fields))).error_code == code
        assert await heartbeat(node, member) == ErrorCode.NONE
        assert await commit(node, 5, member) == ErrorCode.NONE

    with_groups(test)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "no-such-group"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_a_member_of_this_generation_is_heard(fields: dict[str, Any], code: ErrorCode) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert await heartbeat(node, member, **fields) == code
        assert (await sync(node, member, **fields)).error_code == code
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


def test_an_assignment_that_no_record_could_hold_is_refused() -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        large = SyncGroupRequest.Assignment(member_id=member.member_id, assignment=bytes(2_000_000))
        assert (
            await sync(node, member, assignments=(large,))
        ).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


def test_a_protocol_that_is_not_the_groups_is_refused_at_the_sync() -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert (
            await sync(node, member, protocol_name="other")
        ).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (
            await sync(node, member, protocol_type="connect")
        ).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_in_every_version(version: int) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        batched = version >= 3

        async def leaving(member_id: str) -> int:
            members = (LeaveGroupRequest.Member(member_id=member_id),) if batched else ()
            request = LeaveGroupRequest(
                group_id=GROUP, member_id="" if batched else member_id, members=members
            )
            response = await answer(node, LEAVE, version, request)
            return int(response.members[0].error_code if batched else response.error_code)

        assert await leaving("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await leaving(member.member_id) == ErrorCode.NONE
        assert await heartbeat(node, member) == ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            await answer(node, LEAVE, version, LeaveGroupRequest())
        ).error_code == ErrorCode.INVALID_GROUP_ID
        gone = (LeaveGroupRequest.Member(member_id="nobody"),) if batched else ()
        told = await answer(
            node, LEAVE, version, LeaveGroupRequest(group_id="no-such-group", members=gone)
        )
        codes = [told.error_code, *(one.error_code for one in told.members)]
        assert codes == (
            [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            if batched
            else [ErrorCode.UNKNOWN_MEMBER_ID]
        )

    with_groups(test)


# Offsets


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": "m" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_commit_that_does_not_fit_is_refused_and_changes_nothing(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert await commit(node, 5, member) == ErrorCode.NONE
        assert await commit(node, 99, member, **fields) == code
        assert await committed(node) == (5, ErrorCode.NONE)

    with_groups(test)


def test_partitions_that_are_not_there_do_not_keep_the_others_from_being_committed() -> None:
    async def test(node: FakeNode) -> None:
        partitions = tuple(
            OffsetCommitRequest.Topic.Partition(partition_index=one, committed_offset=5)
            for one in (0, 7, 2)
        )
        topics = (
            OffsetCommitRequest.Topic(name="orders", partitions=partitions),
            *commit_request(9, topic="nowhere").topics,
        )
        response = await answer(node, COMMIT, 9, commit_request(0, topics=topics))
        told = {
            (topic.name, one.partition_index): one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told == {
            ("orders", 0): 0,
            ("orders", 7): unknown,
            ("orders", 2): 0,
            ("nowhere", 0): unknown,
        }
        assert [await committed(node, partition=one) for one in (0, 2)] == [(5, 0), (5, 0)]

    with_groups(test)


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_and_a_fetch_of_every_version(version: int) -> None:
    async def test(node: FakeNode) -> None:
        topic_id = node.image.topics["orders"].id if version >= 10 else NO_UUID
        name = "" if version >= 10 else "orders"
        asked = OffsetCommitRequest.Topic.Partition(
            partition_index=1, committed_offset=41, committed_metadata="note"
        )
        topic = OffsetCommitRequest.Topic(name=name, topic_id=topic_id, partitions=(asked,))
        response = await answer(
            node, COMMIT, version, OffsetCommitRequest(group_id=GROUP, topics=(topic,))
        )
        assert [
            (one.name, one.topic_id, one.partitions[0].error_code) for one in response.topics
        ] == [(name, topic_id, 0)]
        for topics in (None, (1, 2)):
            found = await _fetch(node, version, topics)
            assert (found[1].committed_offset, found[1].metadata, found[1].error_code) == (
                41,
                "note",
                0,
            )
            assert topics is None or found[2].committed_offset == -1

    with_groups(test)


async def _fetch(
    node: FakeNode, version: int, partitions: tuple[int, ...] | None
) -> dict[int, Any]:
    """By partition."""
    topic_id = node.image.topics["orders"].id if version >= 10 else NO_UUID
    if version < 8:
        topics = (
            None
            if partitions is None
            else (OffsetFetchRequest.Topic(name="orders", partition_indexes=partitions),)
        )
        response = await answer(
            node, FETCH, version, OffsetFetchRequest(group_id=GROUP, topics=topics)
        )
        assert response.error_code == ErrorCode.NONE
        return {one.partition_index: one for topic in response.topics for one in topic.partitions}
    name = "" if version >= 10 else "orders"
    wanted = OffsetFetchRequest.Group.Topic(
        name=name, topic_id=topic_id, partition_indexes=partitions or ()
    )
    group = OffsetFetchRequest.Group(
        group_id=GROUP, topics=None if partitions is None else (wanted,)
    )
    other = OffsetFetchRequest.Group(group_id="other", topics=None)
    response = await answer(node, FETCH, version, OffsetFetchRequest(groups=(group, other)))
    assert [(one.group_id, one.error_code) for one in response.groups] == [(GROUP, 0), ("other", 0)]
    assert response.groups[1].topics == ()
    return {
        one.partition_index: one for topic in response.groups[0].topics for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_not_read_as_missing_where_somebody_else_coordinates(version: int) -> None:
    async def main(node: FakeNode) -> None:
        asked = OffsetFetchRequest.Topic(name="orders", partition_indexes=(0,))
        group = OffsetFetchRequest.Group(group_id=GROUP, topics=None)
        request = (
            OffsetFetchRequest(group_id=GROUP, topics=(asked,))
            if version < 8
            else OffsetFetchRequest(groups=(group,))
        )
        response = await answer(node, FETCH, version, request)
        told = (
            response.topics[0].partitions[0]
            if version == 1
            else response
            if version < 8
            else response.groups[0]
        )
        assert told.error_code == ErrorCode.NOT_COORDINATOR

    run(main, **SETTINGS)


def test_offsets_are_deleted_but_not_of_what_is_read() -> None:
    async def test(node: FakeNode) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partitions = tuple(
            OffsetDeleteRequest.Topic.Partition(partition_index=one) for one in (0, 9)
        )
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=(OffsetDeleteRequest.Topic(name="orders", partitions=partitions),),
        )
        response = await answer(node, DELETE_OFFSETS, 0, request)
        told = {
            one.partition_index: one.error_code
            for topic in response.topics
            for one in topic.partitions
        }
        assert (response.error_code, told) == (
            ErrorCode.NONE,
            {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )
        assert await committed(node) == (-1, ErrorCode.NONE)
        missing = await answer(
            node, DELETE_OFFSETS, 0, OffsetDeleteRequest(group_id="no-such-group")
        )
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (
            await answer(node, DELETE_OFFSETS, 0, OffsetDeleteRequest())
        ).error_code == ErrorCode.INVALID_GROUP_ID

    with_groups(test)


# What administrators ask


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(version: int) -> None:
    async def test(node: FakeNode) -> None:
        await join(node)
        response = await answer(node, LIST, version, ListGroupsRequest())
        assert [(one.group_id, one.protocol_type, one.group_state) for one in response.groups] == [
            (GROUP, "consumer", "Stable")
        ]
        if version >= 4:
            assert not (
                await answer(node, LIST, version, ListGroupsRequest(states_filter=("empty",)))
            ).groups
        if version >= 5:
            assert (
                await answer(node, LIST, version, ListGroupsRequest(types_filter=("Classic",)))
            ).groups

    with_groups(test)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(version: int) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        response = await answer(
            node, DESCRIBE, version, DescribeGroupsRequest(groups=(GROUP, "none"))
        )
        known, unknown = response.groups
        (told,) = known.members
        assert (known.group_state, known.protocol_type, known.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert (told.member_id, told.client_id, told.client_host) == (
            member.member_id,
            "test",
            "/10.0.0.2",
        )
        assert (told.member_metadata, told.member_assignment) == (b"subscribed", b"mine")
        assert (unknown.group_state, unknown.error_code) == (
            "Dead",
            ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
        )

    with_groups(test)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_once_they_have_no_members(version: int) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        await commit(node, 5, member)

        async def delete() -> dict[str, int]:
            response = await answer(
                node, DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=(GROUP, "none"))
            )
            return {one.group_id: one.error_code for one in response.results}

        assert await delete() == {
            GROUP: ErrorCode.NON_EMPTY_GROUP,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        await leave(node, member)
        assert (await delete())[GROUP] == ErrorCode.NONE
        assert await committed(node) == (-1, ErrorCode.NONE)

    with_groups(test)
