"""What eligible leader replicas ask of min.insync.replicas (KIP-966). PURE.

Who is eligible was worked out by the min.insync.replicas of that time, and by one for the whole
cluster: with another value, acknowledged records may be elsewhere. So it is not altered for single
brokers, and where it is altered, nobody stays eligible.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.log_settings import MIN_INSYNC_REPLICAS
from penstock.controller.features.features import elr_enabled
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, TOPIC, ConfigResource, MetadataImage
from penstock.protocol.internal.metadata_topics import ClearElrRecord

_NAME = MIN_INSYNC_REPLICAS.name


def check_min_insync(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    """KafkaError INVALID_CONFIG where it must stay as it is."""
    kind, name = resource
    if kind != BROKER or _NAME not in changes or not elr_enabled(image):
        return
    if name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if changes[_NAME] is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def forget_eligible(
    image: MetadataImage, resource: ConfigResource, altered: Mapping[str, str | None]
) -> list[object]:
    kind, name = resource
    if _NAME not in altered or not elr_enabled(image):
        return []
    return [ClearElrRecord(topic_name=name if kind == TOPIC else "")]
