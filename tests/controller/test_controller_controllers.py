"""Registrations of controllers (KIP-919), and kraft.version in UpdateFeatures (KIP-853)."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.controller.controllers import register_controller
from penstock.controller.decision import ControllerResult
from penstock.controller.features import (
    SAFE_DOWNGRADE,
    SUPPORTED_FEATURES,
    UPGRADE,
    bootstrap_records,
    split_kraft_version,
    update_features,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.update_features import UpdateFeaturesRequest
from tests.controller.clusters import context

Feature = ControllerRegistrationRequest.Feature
Update = UpdateFeaturesRequest.FeatureUpdate
ALL = {feature.name: (feature.first, feature.last) for feature in SUPPORTED_FEATURES}


def registration(
    levels: dict[str, tuple[int, int]], incarnation: int = 1, listeners: int = 1
) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=UUID(int=incarnation),
        listeners=tuple(
            ControllerRegistrationRequest.Listener(name=f"C{number}", host="c7", port=9093)
            for number in range(listeners)
        ),
        features=tuple(
            Feature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in levels.items()
        ),
    )


def new_cluster() -> MetadataImage:
    return MetadataImage.empty().replay(bootstrap_records(context()), 5)[0]


def register(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    return register_controller(image, request, context())


def test_registration_is_in_the_image_with_listeners_and_features() -> None:
    image = new_cluster()
    decided = register(image, registration(ALL))
    image = image.replay(decided.records, 6)[0]
    (known,) = image.controllers.values()
    assert (known.controller_id, known.incarnation_id) == (7, UUID(int=1))
    assert [(each.name, each.host, each.port) for each in known.end_points] == [("C0", "c7", 9093)]
    assert register(image, registration(ALL)).records == (), "the same one again"
    assert len(register(image, registration(ALL, incarnation=2)).records) == 1


def test_registered_controller_limits_the_levels_of_features() -> None:
    """An older controller could not read what a higher level writes."""
    image = new_cluster()
    older = {**ALL, "group.version": (0, 1), "transaction.version": (0, 2)}
    image = image.replay(register(image, registration(older)).records, 6)[0]
    request = UpdateFeaturesRequest(
        feature_updates=(Update(feature="unknown", max_version_level=1, upgrade_type=UPGRADE),)
    )
    assert update_features(image, request, context()).response.error_code


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (registration({**ALL, "metadata.version": (1, 20)}), ErrorCode.UNSUPPORTED_VERSION),
        (registration({}), ErrorCode.UNSUPPORTED_VERSION),
        (registration(ALL, listeners=17), ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_unfit_controllers_are_refused(
    request_: ControllerRegistrationRequest, error: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        register(new_cluster(), request_)
    assert refused.value.code is error


def test_kraft_version_is_split_from_the_other_features() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=(
            Update(feature="kraft.version", max_version_level=1, upgrade_type=UPGRADE),
            Update(feature="group.version", max_version_level=1, upgrade_type=UPGRADE),
        )
    )
    level, others = split_kraft_version(request, validate_only=True)
    assert level == 1
    assert [update.feature for update in others.feature_updates] == ["group.version"]
    assert others.validate_only
    assert split_kraft_version(others, validate_only=False)[0] is None


@pytest.mark.parametrize(("level", "kind"), [(2, UPGRADE), (-1, UPGRADE), (0, SAFE_DOWNGRADE)])
def test_invalid_levels_of_kraft_version_are_refused(level: int, kind: int) -> None:
    update = Update(feature="kraft.version", max_version_level=level, upgrade_type=kind)
    with pytest.raises(KafkaError) as refused:
        split_kraft_version(UpdateFeaturesRequest(feature_updates=(update,)), validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
