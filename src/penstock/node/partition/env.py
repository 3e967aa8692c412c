"""What partitions and their replication need from the node."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.log.store import LogStore
from penstock.metadata.image import BrokerImage
from penstock.node.delayed import ActionQueue
from penstock.replica.leader import IsrProposal
from penstock.world import World

if TYPE_CHECKING:
    from penstock.node.partition.leader import LeaderRole


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
