"""Offsets that nobody wants any longer, and groups without offsets and members. PURE.

A sweep goes through all groups, some of them in each turn, so that a shard with very many offsets
does not stall the node.
"""

from __future__ import annotations

from penstock.coordinator.groups.group import Group
from penstock.coordinator.offsets.committed import Committed
from penstock.coordinator.offsets.removal import remove_group
from penstock.coordinator.runtime.turn import Turn
from penstock.ids import NO_TIMESTAMP
from penstock.limits import EXPIRY_OFFSETS_A_TURN


class Sweep:
    """When the next one is due, and what is left of the present one."""

    __slots__ = ("_left", "due_ms")

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self._left: list[str] = []

    def run(self, turn: Turn) -> None:
        if turn.now_ms < self.due_ms:
            return
        if not self._left:
            self._left = list(turn.groups.by_id)
        looked_at = 0
        while self._left and looked_at < EXPIRY_OFFSETS_A_TURN:
            group = turn.groups.by_id.get(self._left.pop())
            if group is not None:
                looked_at += 1 + len(turn.groups.offsets.of_group(group.id))
                expire_group(turn, group)
        self.due_ms = (
            turn.now_ms
            if self._left
            else turn.now_ms + turn.groups.settings.offsets_retention_check_interval_ms
        )


def expire_group(turn: Turn, group: Group) -> None:
    offsets = turn.groups.offsets
    for partition, committed in list(offsets.of_group(group.id).items()):
        if _is_expired(turn, group, committed, partition.topic) and not offsets.is_unstable(
            group.id, partition
        ):
            turn.remove_offset(group.id, partition)
    if (
        group.is_empty
        and not offsets.of_group(group.id)
        and not offsets.is_in_transaction(group.id)
    ):
        remove_group(turn, group)


def _is_expired(turn: Turn, group: Group, committed: Committed, topic: str) -> bool:
    since_ms = group.retained_since_ms(committed.commit_timestamp_ms)
    if since_ms is None or group.is_subscribed_to(topic):
        return False
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return turn.wall_ms >= committed.expire_timestamp_ms
    return turn.wall_ms - since_ms >= turn.groups.settings.offsets_retention_ms
