"""UpdateFeatures, the records of a new cluster, and min.insync.replicas with ELR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.controller.configs.alter import alter_configs, incremental_alter_configs
from penstock.controller.decision import ControllerResult
from penstock.controller.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    bootstrap_records,
    consumer_groups_refusal,
    update_features,
)
from penstock.errors import ErrorCode
from penstock.metadata.image import BROKER, TOPIC, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.messages.alter_configs import AlterConfigsRequest
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.controller.clusters import (
    after,
    broker,
    cluster,
    context,
    partition,
    running,
    state_of,
    with_topic,
)

GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
ELR = "eligible.leader.replicas.version"
MIN_INSYNC = "min.insync.replicas"
Update = UpdateFeaturesRequest.FeatureUpdate
Resource = IncrementalAlterConfigsRequest.Resource


def update(
    image: MetadataImage, name: str, level: int, kind: int = UPGRADE, **more: bool
) -> ControllerResult[UpdateFeaturesResponse]:
    validate_only = more.pop("validate_only", False)
    update_ = Update(feature=name, max_version_level=level, upgrade_type=kind, **more)
    return update_features(
        image,
        UpdateFeaturesRequest(feature_updates=(update_,), validate_only=validate_only),
        context(),
    )


def test_new_cluster_has_kafkas_levels_and_a_cluster_wide_min_insync() -> None:
    image = MetadataImage.empty().replay(bootstrap_records(context(min_insync_replicas="2")), 2)[0]
    assert image.features == {
        "metadata.version": 30,
        ELR: 1,
        GROUP_VERSION: 1,
        TRANSACTION_VERSION: 2,
    }
    assert image.configs == {(BROKER, ""): {MIN_INSYNC: "2"}}


@pytest.mark.parametrize("name", [ELR, GROUP_VERSION])
def test_downgrade_and_upgrade(name: str) -> None:
    image = running(broker(1))
    down = after(image, update(image, name, 0, SAFE_DOWNGRADE))
    assert name not in down.features
    decision = update(down, name, 1)
    assert after(down, decision).features == image.features
    assert decision.response.results == (UpdateFeaturesResponse.Result(feature=name),)
    assert update(down, name, 1, validate_only=True).records == ()


def test_transaction_version_goes_down_to_0_and_up_to_2() -> None:
    image = running(broker(1))
    for level, kind in ((1, SAFE_DOWNGRADE), (0, SAFE_DOWNGRADE), (2, UPGRADE)):
        decision = update(image, TRANSACTION_VERSION, level, kind)
        assert decision.response.error_code == ErrorCode.NONE
        image = after(image, decision)
        assert image.features.get(TRANSACTION_VERSION, 0) == level
    assert "only supports versions 0-2" in str(
        update(image, TRANSACTION_VERSION, 3).response.error_message
    )


def test_consumer_groups_depend_on_group_version() -> None:
    """A cluster that is older than the feature has it disabled until its level is raised."""
    older = cluster(broker(1))
    refusal = consumer_groups_refusal(older)
    assert refusal is not None
    assert refusal.code is ErrorCode.UNSUPPORTED_VERSION
    assert "kafka-features.sh upgrade --feature group.version=1" in refusal.message
    assert consumer_groups_refusal(after(older, update(older, GROUP_VERSION, 1))) is None


def test_version_0_has_allow_downgrade() -> None:
    assert (
        update(running(broker(1)), ELR, 0, allow_downgrade=True).response.error_code
        == ErrorCode.NONE
    )


@pytest.mark.parametrize(
    ("name", "level", "kind", "message"),
    [
        (
            ELR,
            0,
            UPGRADE,
            (
                f"Invalid update version 0 for feature {ELR}. Can't downgrade the version of this "
                "feature without setting"
            ),
        ),
        (
            ELR,
            2,
            UPGRADE,
            (
                f"Invalid update version 2 for feature {ELR}. Local controller 1 only supports "
                "versions 0-1"
            ),
        ),
        (ELR, -1, UPGRADE, "A feature version cannot be less than 0."),
        (ELR, 1, 0, "The controller does not support the given upgrade type."),
        ("metadata.version", 29, SAFE_DOWNGRADE, "Local controller 1 only supports versions 30"),
        ("share.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
    ],
)
def test_invalid_updates(name: str, level: int, kind: int, message: str) -> None:
    decision = update(running(broker(1)), name, level, kind)
    assert (decision.records, decision.response.error_code) == (
        (),
        ErrorCode.INVALID_UPDATE_VERSION,
    )
    assert message in str(decision.response.error_message)


def test_level_that_a_broker_does_not_support_is_refused() -> None:
    image = cluster(broker(1), replace(broker(2), features=()))
    assert "Broker 2 does not support this feature." in str(
        update(image, ELR, 1).response.error_message
    )
    assert "Can't downgrade to a newer version." in str(
        update(cluster(), ELR, 1, SAFE_DOWNGRADE).response.error_message
    )


def test_enabling_elr_sets_a_cluster_wide_min_insync() -> None:
    setting = ConfigRecord(resource_type=BROKER, resource_name="1", name=MIN_INSYNC, value="3")
    image = cluster(broker(1)).replay([setting], 11)[0]
    assert after(image, update(image, ELR, 1)).configs == {(BROKER, ""): {MIN_INSYNC: "1"}}


def set_min_insync(
    image: MetadataImage, kind: int, name: str, value: str | None
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    config = Resource.Config(
        name=MIN_INSYNC, config_operation=1 if value is None else 0, value=value
    )
    request = IncrementalAlterConfigsRequest(
        resources=(Resource(resource_type=kind, resource_name=name, configs=(config,)),)
    )
    return incremental_alter_configs(image, request, context())


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_lowering_min_insync_clears_eligible_replicas(kind: int, name: str) -> None:
    eligible = partition(1, 2, isr=(1,), eligible_leader_replicas=(2,))
    image = with_topic(running(broker(1), broker(2)), eligible)
    decision = set_min_insync(image, kind, name, "1")
    assert decision.response.responses[0].error_code == ErrorCode.NONE
    state = state_of(after(image, decision))
    assert (state.eligible_leader_replicas, state.partition_epoch) == ((), 1)
    without_feature = replace(image, features={})
    assert state_of(
        after(without_feature, set_min_insync(without_feature, kind, name, "1"))
    ).eligible_leader_replicas == (2,)


@pytest.mark.parametrize(
    ("value", "kept"), [("3", (2, 3)), ("2", (2, 3)), ("1", ())], ids=["raised", "same", "lowered"]
)
def test_eligible_replicas_stay_while_too_few_are_in_sync(
    value: str, kept: tuple[int, ...]
) -> None:
    """Records that they have are committed; the only one in sync may lose them with its power."""
    eligible = partition(1, 2, 3, isr=(1,), eligible_leader_replicas=(2, 3))
    image = with_topic(running(*map(broker, (1, 2, 3))), eligible, min_insync_replicas="2")
    state = state_of(after(image, set_min_insync(image, TOPIC, "t", value)))
    assert state.eligible_leader_replicas == kept


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_changing_min_insync_leaves_a_partition_without_leader_electable(
    kind: int, name: str
) -> None:
    leaderless = partition(
        1, 2, isr=(), leader=-1, eligible_leader_replicas=(2,), last_known_elr=(1,)
    )
    image = with_topic(running(broker(1), broker(2)), leaderless, min_insync_replicas="2")
    state = state_of(after(image, set_min_insync(image, kind, name, "3")))
    assert (state.eligible_leader_replicas, state.last_known_elr) == ((2,), (1,))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("1", "2", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ("", None, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ],
)
def test_min_insync_cannot_be_overridden_or_removed_while_elr_is_enabled(
    name: str, value: str | None, message: str
) -> None:
    decision = set_min_insync(running(broker(1)), BROKER, name, value)
    refused = decision.response.responses[0]
    assert (decision.records, refused.error_code, refused.error_message) == (
        (),
        ErrorCode.INVALID_CONFIG,
        message,
    )


def test_alter_configs_cannot_remove_min_insync_while_elr_is_enabled() -> None:
    resource = AlterConfigsRequest.Resource(resource_type=BROKER, resource_name="", configs=())
    decision = alter_configs(
        running(broker(1)), AlterConfigsRequest(resources=(resource,)), context()
    )
    assert decision.response.responses[0].error_code == ErrorCode.INVALID_CONFIG
