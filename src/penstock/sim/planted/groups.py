"""Bugs planted in the coordinator of groups: as `planted`, for the rules that groups have to
keep."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from penstock.coordinator.offsets import commit as offset_commit
from penstock.coordinator.runtime.step import Answer
from penstock.errors import ErrorCode
from penstock.node.shards.group_shard import GroupShard
from penstock.node.shards.loading import Loading
from penstock.sim.harness import replaced


def commits_answered_before_they_are_committed() -> AbstractContextManager[None]:
    def deliver(shard: GroupShard, answers: tuple[Answer, ...]) -> None:
        shard._tickets.deliver(answers)

    return replaced(GroupShard, "_when_committed", lambda _was: deliver)


def groups_forgotten_by_a_new_coordinator() -> AbstractContextManager[None]:
    async def nothing(*_args: Any) -> int:
        return 0

    return replaced(Loading, "load", lambda _was: nothing)


def stale_members_may_commit() -> AbstractContextManager[None]:
    return replaced(offset_commit, "_group_error", lambda _was: lambda *_args: ErrorCode.NONE)


PLANTED_GROUPS = (
    commits_answered_before_they_are_committed,
    groups_forgotten_by_a_new_coordinator,
    stale_members_may_commit,
)
