"""The state and the settings of the group machine: the groups of one partition of
__consumer_offsets, and their committed offsets. PURE.

`GroupStep` changes it; everything else reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.coordinator.offsets.committed import Offsets
from penstock.coordinator.runtime.deadlines import Deadlines
from penstock.coordinator.runtime.step import Undo
from penstock.metadata.image import MetadataImage

# The kind of deadline, the group id and, where a deadline is a member's, the member id. The kinds
# are in `classic/rebalance.py` and `consumer/timeouts.py`.
DeadlineKey = tuple[str, str, str]

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka's. A field has its setting's name, with the unit last."""

    # group.*: the classic protocol.
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = _INT32_MAX
    initial_rebalance_delay_ms: int = 3_000
    # group.consumer.*: the consumer protocol (KIP-848).
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_max_size: int = _INT32_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    # max.message.bytes of __consumer_offsets: the most that one step may write.
    max_batch_bytes: int = 1_048_588
    # offsets.topic.compression.codec is not none.
    compresses: bool = False
    # The node has an authorizer: a client gets the topics that it may describe.
    has_authorizer: bool = False
    # offset.metadata.max.bytes and offsets.*
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000


class Caller(NamedTuple):
    """The client that sent a request, as groups are described with it, and the request's
    version."""

    client_id: str
    client_host: str
    version: int
    # Whether the client may describe a topic. Asked only with an authorizer.
    may_describe: Callable[[str], bool] | None = None


class Group(Protocol):
    """What classic and consumer groups offer to offsets and to administrators.

    The checks raise KafkaError with the code that the client receives.
    """

    @property
    def id(self) -> str: ...

    @property
    def kind(self) -> str:
        """The type that ListGroups shows: "classic" or "consumer"."""

    @property
    def protocol_type(self) -> str | None:
        """None for a group that only commits offsets."""

    @property
    def state_name(self) -> str:
        """The state that ListGroups shows, for example "Empty" or "Stable"."""

    @property
    def is_empty(self) -> bool: ...

    @property
    def member_count(self) -> int: ...

    def save(self, undo: Undo, /) -> None:
        """Note in `undo` what may change other than by records that note it themselves."""

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        version: int,
        /,
        *,
        transactional: bool = False,
    ) -> None:
        """Check that a member with this generation or member epoch may commit offsets. In a
        transaction a producer that names no member may do so as well (KIP-447)."""

    def check_fetch(self, member_id: str | None, epoch: int, /) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retained_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the wall clock time from which the retention of an offset counts, if the group is
        not subscribed to its topic. None: the offset does not expire."""

    def tombstone_keys(self) -> tuple[object, ...]:
        """Return the keys of all the group's records but its offsets."""


class GroupTable:
    """`new_uuid` makes member ids. The numbers of rebalances that were begun are those since the
    shard was loaded."""

    __slots__ = (
        "by_id",
        "classic_rebalances",
        "consumer_rebalances",
        "deadlines",
        "image",
        "new_uuid",
        "offsets",
        "settings",
    )

    def __init__(
        self, settings: GroupSettings, image: MetadataImage, new_uuid: Callable[[], UUID]
    ) -> None:
        self.settings = settings
        self.image = image
        self.new_uuid = new_uuid
        self.by_id: dict[str, Group] = {}
        self.offsets = Offsets()
        self.deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.classic_rebalances = 0
        self.consumer_rebalances = 0
