"""Bugs planted in the group coordinator: as `planted`, for the rules of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from penstock.coordinator.consumer import checks
from penstock.coordinator.offsets import commit as offset_commit
from penstock.coordinator.runtime.step import Now, Reply
from penstock.errors import ErrorCode, KafkaError
from penstock.node.shards.loading import ShardLoader
from penstock.node.shards.shard import Shard
from penstock.node.shards.step_clock import StepClock
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


@contextmanager
def oversized_step_unloads_its_shard() -> Iterator[None]:
    """Defect 14: a step that max.message.bytes refuses discards all groups of its shard."""
    with (
        replaced(checks, "check_size", lambda _original: lambda *_args: None),
        _failing_with(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        yield


@contextmanager
def sessions_time_out_below_min_insync() -> Iterator[None]:
    """Defect 15: consumer heartbeats are refused while too few replicas of __consumer_offsets are
    in sync, and sessions run on."""

    def make_decide(original: Any) -> Any:
        def decide(shard: Shard[Any, Any], request: Any, refused: Any, **_options: Any) -> Any:
            return original(shard, request, refused, needs_writes=True)

        return decide

    def make_now(original: Any) -> Any:
        def now(clock: StepClock, **_options: Any) -> Now:
            running: Now = original(clock, is_running=True)
            return running

        return now

    with replaced(Shard, "decide", make_decide), replaced(StepClock, "now", make_now):
        yield


def write_below_min_insync_unloads_its_shard() -> AbstractContextManager[None]:
    """Defect 16: a heartbeat that writes while too few replicas are in sync discards all groups of
    its shard."""
    return _failing_with(ErrorCode.NOT_ENOUGH_REPLICAS)


def _failing_with(*codes: ErrorCode) -> AbstractContextManager[None]:
    """A step that is refused with one of these codes unloads the shard."""

    def make(original: Any) -> Any:
        def is_refusal(error: Exception) -> bool:
            is_planted = isinstance(error, KafkaError) and error.code in codes
            return bool(original.__func__(error)) and not is_planted

        return staticmethod(is_refusal)

    return replaced(Shard, "_is_refusal", make)


PLANTED_GROUPS = (
    commits_answered_before_they_are_committed,
    groups_forgotten_by_a_new_coordinator,
    stale_members_may_commit,
)

# Not registered yet: cluster runs have no workload that shows them.
PLANTED_GROUP_DEFECTS = (
    oversized_step_unloads_its_shard,
    sessions_time_out_below_min_insync,
    write_below_min_insync_unloads_its_shard,
)
