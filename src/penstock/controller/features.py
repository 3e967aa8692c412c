"""Feature levels: the supported ones, those of a new cluster, and UpdateFeatures. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.config.log_settings import MIN_INSYNC_REPLICAS
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, METADATA_VERSION, MetadataImage, SupportedFeature
from penstock.protocol.internal.metadata_settings import ConfigRecord, FeatureLevelRecord
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

# The metadata.version of Kafka 4.3, which determines the records of the metadata log.
METADATA_LEVEL = 30
# Eligible leader replicas (KIP-966).
ELR_VERSION = "eligible.leader.replicas.version"
ELR_LEVEL = 1
# The consumer rebalance protocol (KIP-848).
GROUP_VERSION = "group.version"
GROUP_LEVEL = 1
# Transactions: 1 has flexible records in the coordinator's log, 2 a new producer epoch for every
# transaction (KIP-890).
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2
# Voters in the metadata log (KIP-853). The level is a record of the quorum, not of the metadata.
KRAFT_VERSION = "kraft.version"
KRAFT_LEVEL = 1

# What a broker or controller registers with.
SUPPORTED_FEATURES = (
    SupportedFeature(METADATA_VERSION, METADATA_LEVEL, METADATA_LEVEL),
    SupportedFeature(ELR_VERSION, 0, ELR_LEVEL),
    SupportedFeature(GROUP_VERSION, 0, GROUP_LEVEL),
    SupportedFeature(TRANSACTION_VERSION, 0, TRANSACTION_LEVEL),
    SupportedFeature(KRAFT_VERSION, 0, KRAFT_LEVEL),
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

Update = UpdateFeaturesRequest.FeatureUpdate
Range = tuple[int, int]


def elr_enabled(image: MetadataImage) -> bool:
    return image.features.get(ELR_VERSION, 0) >= ELR_LEVEL


def consumer_groups_refusal(image: MetadataImage) -> KafkaError | None:
    """Return the error if the consumer rebalance protocol is disabled: the cluster is older than
    it, or an operator lowered the level."""
    if image.features.get(GROUP_VERSION, 0) >= GROUP_LEVEL:
        return None
    remedy = (
        f"raise it with kafka-features.sh upgrade --feature {GROUP_VERSION}={GROUP_LEVEL}, "
        "or use the classic protocol"
    )
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"the cluster's {GROUP_VERSION} is 0: {remedy}"
    )


def bootstrap_records(context: ControllerContext) -> tuple[object, ...]:
    """Return the first records of a new cluster: feature levels, and min.insync.replicas.

    ELR requires that the controller and all brokers have the same min.insync.replicas, so it must
    not depend on the file of each node (KIP-966, as in Kafka).
    """
    return (
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=ELR_LEVEL),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=GROUP_LEVEL),
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=TRANSACTION_LEVEL),
        _cluster_min_insync(context),
    )


def _cluster_min_insync(context: ControllerContext) -> ConfigRecord:
    value = MIN_INSYNC_REPLICAS.format(context.config[MIN_INSYNC_REPLICAS])
    return ConfigRecord(
        resource_type=BROKER, resource_name="", name=MIN_INSYNC_REPLICAS.name, value=value
    )


def split_kraft_version(
    request: UpdateFeaturesRequest, *, validate_only: bool
) -> tuple[int | None, UpdateFeaturesRequest]:
    """Return the level of kraft.version that a request asks for, None if it asks for none, and a
    request for the other features. Raises KafkaError INVALID_UPDATE_VERSION for a downgrade."""
    level, others = None, []
    for update in request.feature_updates:
        if update.feature != KRAFT_VERSION:
            others.append(update)
            continue
        level = update.max_version_level
        if update.allow_downgrade or update.upgrade_type in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            reason = "Can't downgrade to a newer version." if level else "It cannot be lowered."
        elif not 0 <= level <= KRAFT_LEVEL:
            reason = f"The controller only supports versions 0-{KRAFT_LEVEL}"
        else:
            continue
        message = f"Invalid update version {level} for feature {KRAFT_VERSION}. {reason}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    return level, UpdateFeaturesRequest(
        timeout_ms=request.timeout_ms, feature_updates=tuple(others), validate_only=validate_only
    )


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, context: ControllerContext
) -> ControllerResult[UpdateFeaturesResponse]:
    """All updates of a request are made, or none. Every registered node must support a level."""
    try:
        records = [
            record
            for update in request.feature_updates
            for record in _update(image, update, context)
        ]
    except KafkaError as error:
        return ControllerResult(
            (), UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
        )
    results = tuple(
        UpdateFeaturesResponse.Result(feature=update.feature) for update in request.feature_updates
    )
    return ControllerResult(
        () if request.validate_only else tuple(records), UpdateFeaturesResponse(results=results)
    )


def _update(image: MetadataImage, update: Update, context: ControllerContext) -> Iterator[object]:
    reason = _refusal(image, update, context)
    if reason is not None:
        message = (
            f"Invalid update version {update.max_version_level} for feature "
            f"{update.feature}. {reason}"
        )
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    yield FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
    if update.feature == ELR_VERSION and update.max_version_level > 0:
        yield from _unify_min_insync(image, context)


def _refusal(image: MetadataImage, update: Update, context: ControllerContext) -> str | None:
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    level, current = update.max_version_level, image.features.get(update.feature, 0)
    if level < 0:
        return "A feature version cannot be less than 0."
    for node, supported in _supported_levels(image, context):
        reason = _unsupported(node, supported.get(update.feature, (0, 0)), level)
        if reason is not None:
            return reason
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _supported_levels(
    image: MetadataImage, context: ControllerContext
) -> Iterator[tuple[str, Mapping[str, Range]]]:
    """Yield every registered node with the levels that it supports."""
    local = {feature.name: (feature.first, feature.last) for feature in SUPPORTED_FEATURES}
    yield f"Local controller {context.config.node_id}", local
    for broker in image.brokers.values():
        levels = {feature.name: (feature.first, feature.last) for feature in broker.features}
        yield f"Broker {broker.id}", levels
    for controller in image.controllers.values():
        if controller.controller_id != context.config.node_id:
            levels = {
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in controller.features
            }
            yield f"Controller {controller.controller_id}", levels


def _unsupported(node: str, supported: Range, level: int) -> str | None:
    first, last = supported
    if first <= level <= last:
        return None
    if supported == (0, 0):
        return f"{node} does not support this feature."
    return f"{node} only supports versions {first if first == last else f'{first}-{last}'}"


def _unify_min_insync(image: MetadataImage, context: ControllerContext) -> Iterator[ConfigRecord]:
    """Set min.insync.replicas for the whole cluster and remove those of single brokers, as
    `bootstrap_records` does for a new cluster."""
    name = MIN_INSYNC_REPLICAS.name
    if name not in image.configs.get((BROKER, ""), {}):
        yield _cluster_min_insync(context)
    for (kind, resource), values in image.configs.items():
        if kind == BROKER and resource and name in values:
            yield ConfigRecord(resource_type=BROKER, resource_name=resource, name=name, value=None)
