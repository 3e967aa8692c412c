"""A look of doctor that fails is noted, and the others go on."""

from __future__ import annotations

import asyncio
from datetime import UTC

import pytest

from penstock.cli.doctor.notes import Notes
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.health.observations import Unseen


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
