"""A look of doctor that fails is noted, and the others go on."""

from __future__ import annotations

import asyncio
from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.doctor.groups import GroupLook, look_at_group
from penstock.cli.doctor.notes import Notes
from penstock.client.admin.groups import GroupDescription, MemberDescription
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.health.observations import Unseen
from penstock.ids import TopicPartition


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer"), "no answer"),
        (ProtocolError("the version is negative"), "the version is negative"),
        (ConnectionResetError(104, "reset"), "[Errno 104] reset"),
        (ValueError("128 is not a valid code"), "128 is not a valid code"),
        (IndexError("tuple index out of range"), "tuple index out of range"),
        (OSError(), "OSError()"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_foreign_broker_answers_ends_one_look_only(error: Exception, reason: str) -> None:
    async def fail() -> None:
        raise error

    async def look() -> Notes:
        notes = Notes(UTC)
        async with asyncio.TaskGroup() as group:
            group.create_task(notes.look("groups", fail()))
            group.create_task(notes.look("topics", asyncio.sleep(0)))
        return notes

    assert asyncio.run(look()).unseen == [Unseen("groups", reason)]


def test_a_look_that_takes_too_long_is_noted() -> None:
    notes = Notes(UTC)
    asyncio.run(notes.look("groups", asyncio.sleep(60), timeout_s=0.01))
    assert notes.unseen == [Unseen("groups", "no answer within 0.01 s")]


def test_a_defect_of_ours_is_not_hidden() -> None:
    async def fail() -> None:
        raise TypeError("a defect")

    with pytest.raises(TypeError):
        asyncio.run(Notes(UTC).look("groups", fail()))


def test_a_member_whose_assignment_cannot_be_read_has_an_unknown_number_of_partitions() -> None:
    """It would count as a consumer too many."""
    members = (
        MemberDescription("m-1", None, "ours", "10.0.0.7", (TopicPartition("t", 0),)),
        MemberDescription("m-2", None, "foreign", "10.0.0.8", (), assignment_error="too short"),
    )
    described = GroupDescription("g", "Classic", "Stable", "range", "broker1:9092", members)

    async def describe_group(_group_id: str) -> GroupDescription:
        return described

    async def fetch_offsets(_group_id: str) -> dict[TopicPartition, Any]:
        return {}

    groups = SimpleNamespace(describe_group=describe_group, fetch_offsets=fetch_offsets)
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    client: Any = SimpleNamespace(
        groups=groups, cluster=SimpleNamespace(world=SimpleNamespace(clock=clock))
    )
    look = GroupLook("g", named=True)
    asyncio.run(look_at_group(client, look, 0.0, asyncio.Semaphore(1)))
    assert [member.partitions for member in look.members] == [1, None]
