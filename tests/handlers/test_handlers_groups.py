"""The APIs of groups. Invalid input gets Kafka's error codes and leaves the group as it was."""

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


# Coordinators


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
        assert [
            (coordinator.node_id, coordinator.host, coordinator.port, coordinator.error_code)
            for coordinator in found
        ] == [(1, "10.0.0.1", 9092, 0)] * len(found)
        assert len(found) == (1 if version < 4 else 2)

    run(main, **SETTINGS)


def test_a_metadata_request_creates_the_offsets_topic_as_coordinators_need_it() -> None:
    async def main(node: FakeNode) -> None:
        request = MetadataRequest(
            topics=(MetadataRequest.Topic(name="__consumer_offsets"),),
            allow_auto_topic_creation=True,
        )
        (topic,) = (await answer(node, 3, 13, request)).topics
        assert (topic.error_code, len(topic.partitions), topic.is_internal) == (
            ErrorCode.NONE,
            7,
            True,
        )
        assert node.metadata.topic_config("__consumer_offsets").compacts
        assert not node.metadata.topic_config("__consumer_offsets").deletes

    run(main, **{**SETTINGS, "offsets.topic.num.partitions": "7"})


def test_a_new_topic_takes_commits_by_id_immediately() -> None:
    async def test(node: FakeNode) -> None:
        node.create("new")
        topic_id = node.image.topics["new"].id
        topic_request = OffsetFetchRequest.Group.Topic(topic_id=topic_id, partition_indexes=(0,))
        response = await answer(
            node,
            FETCH,
            10,
            OffsetFetchRequest(
                groups=(OffsetFetchRequest.Group(group_id=GROUP, topics=(topic_request,)),)
            ),
        )
        (result,) = response.groups[0].topics[0].partitions
        assert (result.committed_offset, result.error_code) == (-1, ErrorCode.NONE)
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


@pytest.mark.parametrize("key_type", [2, 9])
def test_other_coordinator_types_are_refused(key_type: int) -> None:
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
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
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
def test_an_invalid_join_is_refused_and_the_group_is_unaffected(
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
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_current_generation_are_accepted(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert await heartbeat(node, member, **fields) == code
        assert (await sync(node, member, **fields)).error_code == code
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


def test_an_oversized_assignment_is_refused() -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        large = SyncGroupRequest.Assignment(member_id=member.member_id, assignment=bytes(2_000_000))
        assert (
            await sync(node, member, assignments=(large,))
        ).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await heartbeat(node, member) == ErrorCode.NONE

    with_groups(test)


def test_a_sync_with_another_protocol_is_refused() -> None:
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

        assert await leaving("unknown") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await leaving(member.member_id) == ErrorCode.NONE
        assert await heartbeat(node, member) == ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            await answer(node, LEAVE, version, LeaveGroupRequest())
        ).error_code == ErrorCode.INVALID_GROUP_ID
        missing = (LeaveGroupRequest.Member(member_id="unknown"),) if batched else ()
        result = await answer(
            node, LEAVE, version, LeaveGroupRequest(group_id="no-such-group", members=missing)
        )
        codes = [result.error_code, *(member.error_code for member in result.members)]
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
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": "m" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_invalid_commit_is_refused_and_changes_nothing(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        assert await commit(node, 5, member) == ErrorCode.NONE
        assert await commit(node, 99, member, **fields) == code
        assert await committed(node) == (5, ErrorCode.NONE)

    with_groups(test)


def test_missing_partitions_do_not_prevent_the_commit_of_others() -> None:
    async def test(node: FakeNode) -> None:
        partitions = tuple(
            OffsetCommitRequest.Topic.Partition(partition_index=index, committed_offset=5)
            for index in (0, 7, 2)
        )
        topics = (
            OffsetCommitRequest.Topic(name="orders", partitions=partitions),
            *commit_request(9, topic="nowhere").topics,
        )
        response = await answer(node, COMMIT, 9, commit_request(0, topics=topics))
        result = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert result == {
            ("orders", 0): 0,
            ("orders", 7): unknown,
            ("orders", 2): 0,
            ("nowhere", 0): unknown,
        }
        assert [await committed(node, partition=index) for index in (0, 2)] == [(5, 0), (5, 0)]

    with_groups(test)


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_and_fetch_work_in_every_version(version: int) -> None:
    async def test(node: FakeNode) -> None:
        topic_id = node.image.topics["orders"].id if version >= 10 else NO_UUID
        name = "" if version >= 10 else "orders"
        request = OffsetCommitRequest.Topic.Partition(
            partition_index=1, committed_offset=41, committed_metadata="note"
        )
        topic = OffsetCommitRequest.Topic(name=name, topic_id=topic_id, partitions=(request,))
        response = await answer(
            node, COMMIT, version, OffsetCommitRequest(group_id=GROUP, topics=(topic,))
        )
        assert [
            (topic.name, topic.topic_id, topic.partitions[0].error_code)
            for topic in response.topics
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
    """Return the results by partition."""
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
        return {
            partition.partition_index: partition
            for topic in response.topics
            for partition in topic.partitions
        }
    name = "" if version >= 10 else "orders"
    topic_request = OffsetFetchRequest.Group.Topic(
        name=name, topic_id=topic_id, partition_indexes=partitions or ()
    )
    group = OffsetFetchRequest.Group(
        group_id=GROUP, topics=None if partitions is None else (topic_request,)
    )
    other = OffsetFetchRequest.Group(group_id="other", topics=None)
    response = await answer(node, FETCH, version, OffsetFetchRequest(groups=(group, other)))
    assert [(group.group_id, group.error_code) for group in response.groups] == [
        (GROUP, 0),
        ("other", 0),
    ]
    assert response.groups[1].topics == ()
    return {
        partition.partition_index: partition
        for topic in response.groups[0].topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 11))
def test_another_coordinators_offsets_are_not_read_as_missing(version: int) -> None:
    async def main(node: FakeNode) -> None:
        topic = OffsetFetchRequest.Topic(name="orders", partition_indexes=(0,))
        group = OffsetFetchRequest.Group(group_id=GROUP, topics=None)
        request = (
            OffsetFetchRequest(group_id=GROUP, topics=(topic,))
            if version < 8
            else OffsetFetchRequest(groups=(group,))
        )
        response = await answer(node, FETCH, version, request)
        result = (
            response.topics[0].partitions[0]
            if version == 1
            else response
            if version < 8
            else response.groups[0]
        )
        assert result.error_code == ErrorCode.NOT_COORDINATOR

    run(main, **SETTINGS)


def test_offsets_of_unsubscribed_topics_are_deleted() -> None:
    async def test(node: FakeNode) -> None:
        assert await commit(node, 5) == ErrorCode.NONE
        partitions = tuple(
            OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in (0, 9)
        )
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=(OffsetDeleteRequest.Topic(name="orders", partitions=partitions),),
        )
        response = await answer(node, DELETE_OFFSETS, 0, request)
        result = {
            partition.partition_index: partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        assert (response.error_code, result) == (
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


# Administration


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(version: int) -> None:
    async def test(node: FakeNode) -> None:
        await join(node)
        response = await answer(node, LIST, version, ListGroupsRequest())
        assert [
            (group.group_id, group.protocol_type, group.group_state) for group in response.groups
        ] == [(GROUP, "consumer", "Stable")]
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
        (result,) = known.members
        assert (known.group_state, known.protocol_type, known.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert (result.member_id, result.client_id, result.client_host) == (
            member.member_id,
            "test",
            "/10.0.0.2",
        )
        assert (result.member_metadata, result.member_assignment) == (b"subscribed", b"mine")
        assert (unknown.group_state, unknown.error_code) == (
            "Dead",
            ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
        )

    with_groups(test)


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(version: int) -> None:
    async def test(node: FakeNode) -> None:
        member = await join(node)
        await commit(node, 5, member)

        async def delete() -> dict[str, int]:
            response = await answer(
                node, DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=(GROUP, "none"))
            )
            return {result.group_id: result.error_code for result in response.results}

        assert await delete() == {
            GROUP: ErrorCode.NON_EMPTY_GROUP,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        await leave(node, member)
        assert (await delete())[GROUP] == ErrorCode.NONE
        assert await committed(node) == (-1, ErrorCode.NONE)

    with_groups(test)


# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: what a Kafka broker without an
# authorizer returns.
GROUP_OPERATIONS = 0b1101_0100_1000
NO_OPERATIONS = -(2**31)


@pytest.mark.parametrize("included", [True, False])
def test_described_groups_have_their_authorized_operations_on_request(included: bool) -> None:
    async def test(node: FakeNode) -> None:
        await join(node)
        request = DescribeGroupsRequest(
            groups=(GROUP, "none"), include_authorized_operations=included
        )
        known, unknown = (await answer(node, DESCRIBE, 6, request)).groups
        assert known.authorized_operations == (GROUP_OPERATIONS if included else NO_OPERATIONS)
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert unknown.authorized_operations == NO_OPERATIONS

    with_groups(test)
