"""Members of groups for the tests of handlers: the requests of a client, and checks of the
responses that it needs to join."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from penstock.errors import ErrorCode
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.handlers.fake_node import FakeNode, FakePartition, answer

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
GROUP = "readers"

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


async def offsets_partition(node: FakeNode) -> FakePartition:
    """Return the partition of all groups in these tests. The first FindCoordinator creates it."""
    found = await answer(node, FIND, 6, FindCoordinatorRequest(coordinator_keys=(GROUP,)))
    assert [(broker.node_id, broker.error_code) for broker in found.coordinators] == [
        (1, ErrorCode.NONE)
    ]
    return next(
        partition for name, partition in node.partitions.items() if name.topic == OFFSETS_TOPIC
    )


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    protocol = JoinGroupRequest.Protocol(name="range", metadata=b"subscribed")
    given = {
        "group_id": GROUP,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
    }
    return JoinGroupRequest(**{**given, "protocols": (protocol,), "member_id": member_id, **fields})


async def join(node: FakeNode, **fields: Any) -> Any:
    """Make a stable group with one member; return its JoinGroup response."""
    first = await answer(node, JOIN, 9, join_request(**fields))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await answer(node, JOIN, 9, join_request(first.member_id, **fields))
    assert joined.error_code == ErrorCode.NONE
    synced = await sync(node, joined)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    return joined


async def sync(node: FakeNode, joined: Any, **fields: Any) -> Any:
    assigned = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"mine")
    given = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": (assigned,),
    }
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    return await answer(node, SYNC, 5, SyncGroupRequest(**{**given, **named, **fields}))


async def heartbeat(node: FakeNode, joined: Any, **fields: Any) -> int:
    given = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
    }
    response = await answer(node, HEARTBEAT, 4, HeartbeatRequest(**{**given, **fields}))
    return int(response.error_code)


async def leave(node: FakeNode, joined: Any) -> Any:
    return await answer(
        node,
        LEAVE,
        5,
        LeaveGroupRequest(
            group_id=GROUP, members=(LeaveGroupRequest.Member(member_id=joined.member_id),)
        ),
    )


def commit_request(
    offset: int, joined: Any = None, *, topic: str = "orders", partition: int = 0, **fields: Any
) -> OffsetCommitRequest:
    """Return the request of a member, or of a client that is no member."""
    metadata = fields.pop("metadata", "")
    partition_request = OffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    given: dict[str, Any] = {
        "group_id": GROUP,
        "topics": (OffsetCommitRequest.Topic(name=topic, partitions=(partition_request,)),),
    }
    if joined is not None:
        given |= {
            "generation_id_or_member_epoch": joined.generation_id,
            "member_id": joined.member_id,
        }
    return OffsetCommitRequest(**{**given, **fields})


async def commit(node: FakeNode, offset: int, joined: Any = None, **fields: Any) -> int:
    response = await answer(node, COMMIT, 9, commit_request(offset, joined, **fields))
    return int(response.topics[0].partitions[0].error_code)


async def committed(node: FakeNode, topic: str = "orders", partition: int = 0) -> tuple[int, int]:
    """Return the committed offset and the group's error."""
    topic_request = OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=(partition,))
    response = await answer(
        node,
        FETCH,
        9,
        OffsetFetchRequest(
            groups=(OffsetFetchRequest.Group(group_id=GROUP, topics=(topic_request,)),)
        ),
    )
    (group,) = response.groups
    return group.topics[0].partitions[0].committed_offset if group.topics else -1, group.error_code


def waiting(returned: Any) -> asyncio.Future[Any]:
    """Return the future of a response that must not be there yet."""
    assert isinstance(returned, Awaitable)
    return asyncio.ensure_future(returned)
