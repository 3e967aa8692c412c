"""Producers that commit offsets of a group in transactions, and the markers that end them."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.groups.machine import GroupMachine
from penstock.errors import ErrorCode
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.coordinator.group_world import GROUP, World

A, B = 7, 8


def txn_request(
    producer_id: int,
    offset: int,
    member: str = "",
    generation: int = -1,
    *,
    instance: str | None = None,
    topic: str = "t",
    partition: int = 0,
    **fields: Any,
) -> TxnOffsetCommitRequest:
    metadata = fields.pop("metadata", "")
    committed = TxnOffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    given: dict[str, Any] = {
        "transactional_id": f"producer-{producer_id}",
        "group_id": GROUP,
        "producer_id": producer_id,
        "producer_epoch": 0,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": instance,
        "topics": (TxnOffsetCommitRequest.Topic(name=topic, partitions=(committed,)),),
    }
    return TxnOffsetCommitRequest(**{**given, **fields})


def txn_commit(
    world: World,
    producer_id: int,
    offset: int,
    member: str = "",
    generation: int = -1,
    *,
    version: int = 5,
    **fields: Any,
) -> ErrorCode:
    """Commit an offset in a producer's transaction; return the result of the partition."""
    request = txn_request(producer_id, offset, member, generation, **fields)
    ticket = world.new_ticket()
    world.run(
        lambda: world.machine.txn_offset_commit(request, world.caller(version), ticket, world.now)
    )
    ((result,),) = (t.partitions for t in world.reply(ticket, TxnOffsetCommitResponse).topics)
    return ErrorCode(result.error_code)


def end_txn(world: World, producer_id: int, *, commit: bool = True) -> None:
    ticket = world.new_ticket()
    step = world.run(
        lambda: world.machine.write_marker(producer_id, 0, commit, 3, ticket, world.now)
    )
    assert world.reply(ticket, ErrorCode) is ErrorCode.NONE
    assert step.writes, "the log must know of the end"


def fetched(machine: GroupMachine, *, stable: bool, partition: int = 0) -> tuple[int, ErrorCode]:
    topic = OffsetFetchRequest.Group.Topic(name="t", partition_indexes=(partition,))
    request = OffsetFetchRequest.Group(group_id=GROUP, topics=(topic,))
    ((result,),) = (t.partitions for t in machine.offset_fetch(request, stable, 9).topics)
    return result.committed_offset, ErrorCode(result.error_code)
