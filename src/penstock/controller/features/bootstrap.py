"""What a new cluster begins with. PURE."""

from __future__ import annotations

from penstock.config.log_settings import MIN_INSYNC_REPLICAS
from penstock.controller.context import ControllerContext
from penstock.controller.features.features import (
    ELR_LEVEL,
    ELR_VERSION,
    GROUP_LEVEL,
    GROUP_VERSION,
    METADATA_LEVEL,
)
from penstock.metadata.image import BROKER, METADATA_VERSION
from penstock.protocol.internal.metadata_settings import ConfigRecord, FeatureLevelRecord


def bootstrap_records(node: ControllerContext) -> tuple[object, ...]:
    """The feature levels, and min.insync.replicas for the whole cluster: eligible leader replicas
    are right only if the controller and all brokers have one idea of it, so that it must not stay a
    matter of each node's file (KIP-966, as Kafka does)."""
    return (
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=ELR_LEVEL),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=GROUP_LEVEL),
        min_insync_for_all(node),
    )


def min_insync_for_all(node: ControllerContext) -> ConfigRecord:
    value = MIN_INSYNC_REPLICAS.format(node.broker[MIN_INSYNC_REPLICAS])
    return ConfigRecord(
        resource_type=BROKER, resource_name="", name=MIN_INSYNC_REPLICAS.name, value=value
    )
