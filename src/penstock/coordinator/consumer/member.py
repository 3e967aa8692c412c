"""One member of a consumer group (KIP-848): what it wants, in which epoch it is, and what it has.
PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from penstock.coordinator.classic.member import Protocol

# Epochs with a meaning of their own in requests and, the last one, in records.
JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2

# By topic and partition: the epoch of the member in which the partition was assigned to it.
Owned = Mapping[UUID, Mapping[int, int]]


class MemberState(IntEnum):
    """The numbers are those of records."""

    STABLE = 0
    # It was told to give partitions up, and has not said that it did.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others still have.
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member that speaks the classic protocol said in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]

    @property
    def protocol(self) -> Protocol:
        """The one that it gets its assignments in: all of them have the same subscription."""
        return self.protocols[0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # Empty: it does not subscribe by an expression.
    regex: str = ""
    assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicSide | None = None
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_only(self, owned: Mapping[UUID, frozenset[int]] | None) -> bool:
        """Whether nothing is owned but what is assigned. It must have been said what is."""
        return owned is not None and all(
            partitions <= self.assigned.get(topic, {}).keys() for topic, partitions in owned.items()
        )
