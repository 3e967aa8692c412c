"""Bugs planted in the group coordinator: as `planted`, for the rules of groups."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from penstock.coordinator.offsets import commit as offset_commit
from penstock.coordinator.runtime.step import Reply
from penstock.errors import ErrorCode
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.shard import Shard
from penstock.sim.harness import replaced


def commits_answered_before_they_are_committed() -> AbstractContextManager[None]:
    def deliver(shard: Shard[Any, Any], replies: tuple[Reply, ...]) -> None:
        shard._replies.deliver(replies)

    return replaced(Shard, "_reply_when_committed", lambda _original: deliver)


def groups_forgotten_by_a_new_coordinator() -> AbstractContextManager[None]:
    async def nothing(*_args: Any) -> int:
        return 0

    return replaced(ShardLoader, "load", lambda _original: nothing)


def stale_members_may_commit() -> AbstractContextManager[None]:
    return replaced(offset_commit, "_group_error", lambda _original: lambda *_args: ErrorCode.NONE)


PLANTED_GROUPS = (
    commits_answered_before_they_are_committed,
    groups_forgotten_by_a_new_coordinator,
    stale_members_may_commit,
)
