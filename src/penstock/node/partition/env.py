"""What partitions and their replication need from the node."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.log.store import LogStore
from penstock.metadata.image import BrokerImage
from penstock.node.delayed import ActionQueue
from penstock.node.partition.counts import PartitionCounts
from penstock.replica.leader import IsrProposal
from penstock.replica.throttle import ReplicationThrottles
from penstock.world import World

if TYPE_CHECKING:
    from penstock.node.partition.leader import LeaderRole


@dataclass(slots=True)
class PartitionMarks:
    """What periodic work looks at. An idle partition is not in it."""

    # Leaders whose ISR or high watermark may change with time alone: a follower is behind.
    reviews: dict[LeaderRole, None] = field(default_factory=dict)
    # Whether a high watermark changed since they were saved.
    high_watermark_changed: bool = True
    # When each broker last fetched any partition from this one, on the monotonic clock.
    fetched_at: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionEnv:
    """`spawn` starts a task that the node owns. `propose` sends an ISR change to the controller.
    `lag_max_s` is replica.lag.time.max.ms."""

    node_id: int
    world: World
    store: LogStore
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    brokers: Callable[[], Mapping[int, BrokerImage]]
    propose: Callable[[LeaderRole, IsrProposal], None]
    lag_max_s: float
    # Completes what waits for a partition's offsets.
    actions: ActionQueue
    marks: PartitionMarks = field(default_factory=PartitionMarks)
    throttles: ReplicationThrottles = field(default_factory=ReplicationThrottles)
    counts: PartitionCounts = field(default_factory=PartitionCounts)
