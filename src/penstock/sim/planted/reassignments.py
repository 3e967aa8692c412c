"""Bugs planted in reassignments: how they complete, are cancelled and throttled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from penstock.controller.partitions import change_builder, reassignment
from penstock.metadata.image import PartitionState
from penstock.node.fetch.state import FetchState
from penstock.node.replication.replicas import Replicas
from penstock.node.replication.throttled_fetches import ThrottledFetches
from penstock.sim.harness import replaced


def reassignments_complete_too_early() -> AbstractContextManager[None]:
    """A reassignment completes as soon as one of its target replicas is in sync, and takes the
    others for in sync, too."""

    def make(complete: Any) -> Any:
        def early(assignment: Any, isr: tuple[int, ...]) -> Any:
            replicas, adding, removing = assignment
            target = tuple(replica for replica in replicas if replica not in removing)
            is_moving = bool(adding or removing)
            if is_moving and any(replica in isr for replica in target):
                return complete(assignment, target)
            return complete(assignment, isr)

        return early

    return replaced(change_builder, "_complete_reassignment", make)


def removed_replicas_stay_in_the_isr() -> AbstractContextManager[None]:
    """A complete reassignment leaves the replicas that it removed in the ISR, so that the high
    watermark waits for them."""

    def make(complete: Any) -> Any:
        def keep(assignment: Any, isr: tuple[int, ...]) -> Any:
            completed, _remaining = complete(assignment, isr)
            return completed, isr

        return keep

    return replaced(change_builder, "_complete_reassignment", make)


def cancelled_reassignments_keep_new_replicas() -> AbstractContextManager[None]:
    """A cancellation ends the reassignment, but does not restore the replicas before it."""

    def everything(state: PartitionState) -> tuple[int, ...]:
        return state.replicas

    return replaced(reassignment, "original_replicas", lambda _original: everything)


def removed_replicas_are_not_deleted() -> AbstractContextManager[None]:
    """A broker keeps replicas that were reassigned to other brokers."""

    def make(delete: Any) -> Any:
        def keep(replicas: Replicas, name: Any, *, is_reassigned: bool = False) -> Iterator[None]:
            if is_reassigned:
                return iter(())
            deleting: Iterator[None] = delete(replicas, name)
            return deleting

        return keep

    return replaced(Replicas, "_delete", make)


def throttled_partitions_are_not_fetched_again() -> AbstractContextManager[None]:
    """A leader that held a follower back because of a throttle sends it nothing any more."""
    return replaced(FetchState, "release_throttled", lambda _original: lambda _state: None)


def throttled_followers_do_not_wake_up() -> AbstractContextManager[None]:
    """A follower that waits for its throttle waits for ever."""
    return replaced(ThrottledFetches, "_expire", lambda _original: lambda _throttled: None)


# Bugs that the explorer of moves catches.
PLANTED_MOVES = (reassignments_complete_too_early, removed_replicas_stay_in_the_isr)

# Bugs that runs with reassignments catch.
PLANTED_REASSIGNMENTS = (
    reassignments_complete_too_early,
    removed_replicas_stay_in_the_isr,
    cancelled_reassignments_keep_new_replicas,
    removed_replicas_are_not_deleted,
    throttled_partitions_are_not_fetched_again,
    throttled_followers_do_not_wake_up,
)
