"""What a decision may know besides the image and the request. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.config.node import NodeConfig
from penstock.config.node_settings import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The settings of the controller's node, which give the defaults of what a request leaves open,
    and a source of new ids."""

    num_partitions: int
    default_replication_factor: int
    broker: NodeConfig
    new_uuid: Callable[[], UUID]

    @staticmethod
    def of(config: NodeConfig, new_uuid: Callable[[], UUID]) -> ControllerContext:
        return ControllerContext(
            config[NUM_PARTITIONS], config[DEFAULT_REPLICATION_FACTOR], config, new_uuid
        )
