"""What partitions and their replication need of the node that they are on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.log.store import LogStore
from penstock.metadata.image import BrokerImage
from penstock.replica.leader import IsrProposal
from penstock.world import World

if TYPE_CHECKING:
    from penstock.node.partition.partition import Partition


@dataclass(frozen=True, slots=True)
class PartitionEnv:
    """`spawn` starts a task of the node's own; `propose` asks the controller for other in-sync
    replicas."""

    node_id: int
    world: World
    store: LogStore
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    brokers: Callable[[], Mapping[int, BrokerImage]]
    propose: Callable[[Partition, IsrProposal], None]
    lag_max_s: float
