"""What every decision of the controller takes and returns. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from penstock.config.node import NodeConfig
from penstock.config.node_settings import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from penstock.controller.configs.effective import DynamicBrokerConfigs
from penstock.security.quotas.client_quotas import MutationQuota

R = TypeVar("R")


# No slots: typing sets an attribute on the result of a subscripted call, ControllerResult[X](...),
# which a frozen class with slots refuses on Python 3.11.
@dataclass(frozen=True)
class ControllerResult(Generic[R]):
    """Records to append, and the response to send once they are committed.

    They are appended in one batch, all or none, unless `is_atomic` is false. Then they may be many,
    and every prefix of them must leave a valid image (Kafka has the same two kinds).

    `warnings` are log lines for operators. This room is pure, so the caller logs them.
    """

    records: tuple[object, ...]
    response: R
    warnings: tuple[str, ...] = ()
    is_atomic: bool = True


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a decision reads besides the image and the request: the settings of the controller's
    node, a source of new ids, and the quota of partitions that the client may create and delete;
    None if it has none."""

    config: NodeConfig
    broker_configs: DynamicBrokerConfigs
    new_uuid: Callable[[], UUID]
    mutations: MutationQuota | None = None

    @staticmethod
    def of(config: NodeConfig, new_uuid: Callable[[], UUID]) -> ControllerContext:
        return ControllerContext(config, DynamicBrokerConfigs(config), new_uuid)

    def record_mutations(self, partitions: int) -> None:
        """Record partitions that are created or deleted. Raises KafkaError
        THROTTLING_QUOTA_EXCEEDED."""
        if self.mutations is not None:
            self.mutations.record(partitions)

    @property
    def num_partitions(self) -> int:
        return self.config[NUM_PARTITIONS]

    @property
    def default_replication_factor(self) -> int:
        return self.config[DEFAULT_REPLICATION_FACTOR]
