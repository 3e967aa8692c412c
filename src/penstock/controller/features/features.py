"""Feature levels: which ones this software works with, and what they switch on in the controller.
PURE."""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import METADATA_VERSION, MetadataImage, SupportedFeature

# The metadata.version of Kafka 4.3: which records the metadata log may hold.
METADATA_LEVEL = 30
# Eligible leader replicas (KIP-966).
ELR_VERSION = "eligible.leader.replicas.version"
ELR_LEVEL = 1
# The rebalance protocol of consumer groups (KIP-848).
GROUP_VERSION = "group.version"
GROUP_LEVEL = 1

# What a broker or controller of this software says of itself when it registers.
SUPPORTED_FEATURES = (
    SupportedFeature(METADATA_VERSION, METADATA_LEVEL, METADATA_LEVEL),
    SupportedFeature(ELR_VERSION, 0, ELR_LEVEL),
    SupportedFeature(GROUP_VERSION, 0, GROUP_LEVEL),
)


def elr_enabled(image: MetadataImage) -> bool:
    return image.features.get(ELR_VERSION, 0) >= ELR_LEVEL


def consumer_groups_refusal(image: MetadataImage) -> KafkaError | None:
    """Why there are no consumer groups here: the cluster was made before they were, or somebody
    lowered the level."""
    if image.features.get(GROUP_VERSION, 0) >= GROUP_LEVEL:
        return None
    remedy = (
        f"raise it with kafka-features.sh upgrade --feature {GROUP_VERSION}={GROUP_LEVEL}, "
        "or use the classic protocol"
    )
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"the cluster's {GROUP_VERSION} is 0: {remedy}"
    )
