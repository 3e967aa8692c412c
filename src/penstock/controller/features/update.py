"""UpdateFeatures: the levels of features for the whole cluster. PURE.

All updates of a request are made, or none. A level is taken only if every registered node can work
with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.config.log_settings import MIN_INSYNC_REPLICAS
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.features.bootstrap import min_insync_for_all
from penstock.controller.features.features import ELR_VERSION, SUPPORTED_FEATURES
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord, FeatureLevelRecord
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

Update = UpdateFeaturesRequest.FeatureUpdate
Range = tuple[int, int]


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, node: ControllerContext
) -> Decision[UpdateFeaturesResponse]:
    try:
        records = [
            record for update in request.feature_updates for record in _update(image, update, node)
        ]
    except KafkaError as error:
        return Decision(
            (), UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
        )
    results = tuple(
        UpdateFeaturesResponse.Result(feature=update.feature) for update in request.feature_updates
    )
    return Decision(
        () if request.validate_only else tuple(records), UpdateFeaturesResponse(results=results)
    )


def _update(image: MetadataImage, update: Update, node: ControllerContext) -> Iterator[object]:
    reason = _refusal(image, update, node)
    if reason is not None:
        message = (
            f"Invalid update version {update.max_version_level} for feature "
            f"{update.feature}. {reason}"
        )
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    yield FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
    if update.feature == ELR_VERSION and update.max_version_level > 0:
        yield from _one_min_insync(image, node)


def _refusal(image: MetadataImage, update: Update, node: ControllerContext) -> str | None:
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    level, current = update.max_version_level, image.features.get(update.feature, 0)
    if level < 0:
        return "A feature version cannot be less than 0."
    for who, supported in _nodes(image, node):
        reason = _unsupported(who, supported.get(update.feature, (0, 0)), level)
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


def _nodes(
    image: MetadataImage, node: ControllerContext
) -> Iterator[tuple[str, Mapping[str, Range]]]:
    """Every node that has registered, and which levels it can work with."""
    yield (
        f"Local controller {node.broker.node_id}",
        {one.name: (one.first, one.last) for one in SUPPORTED_FEATURES},
    )
    for broker in image.brokers.values():
        yield f"Broker {broker.id}", {one.name: (one.first, one.last) for one in broker.features}
    for controller in image.controllers.values():
        if controller.controller_id != node.broker.node_id:
            levels = {
                one.name: (one.min_supported_version, one.max_supported_version)
                for one in controller.features
            }
            yield f"Controller {controller.controller_id}", levels


def _unsupported(who: str, supported: Range, level: int) -> str | None:
    first, last = supported
    if first <= level <= last:
        return None
    if supported == (0, 0):
        return f"{who} does not support this feature."
    return f"{who} only supports versions {first if first == last else f'{first}-{last}'}"


def _one_min_insync(image: MetadataImage, node: ControllerContext) -> Iterator[ConfigRecord]:
    """Eligible leader replicas need one idea of min.insync.replicas in the whole cluster (see
    `bootstrap`)."""
    name = MIN_INSYNC_REPLICAS.name
    if name not in image.configs.get((BROKER, ""), {}):
        yield min_insync_for_all(node)
    for (kind, resource), values in image.configs.items():
        if kind == BROKER and resource and name in values:
            yield ConfigRecord(resource_type=BROKER, resource_name=resource, name=name, value=None)
