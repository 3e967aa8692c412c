"""What classic and consumer groups have in common, as far as offsets and administrators are
concerned. PURE."""

from __future__ import annotations

from typing import Protocol

from penstock.coordinator.runtime.step import Record


class Group(Protocol):
    """Checks raise KafkaError with the code that the client is answered with."""

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """As ListGroups names it: "classic" or "consumer"."""

    @property
    def protocol_type(self) -> str | None:
        """None for a group that only commits offsets."""

    @property
    def state_name(self) -> str:
        """As ListGroups names it: "Empty", "Stable"."""

    @property
    def is_empty(self) -> bool: ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, /
    ) -> None:
        """Whether somebody with this generation or member epoch may commit offsets."""

    def check_fetch(self, member_id: str | None, epoch: int, /) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retained_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Since when (time of day) an offset of a topic that the group is not subscribed to waits
        to expire. None: it does not."""

    def tombstones(self) -> tuple[Record, ...]:
        """What takes all of the group's own records away; not its offsets."""
