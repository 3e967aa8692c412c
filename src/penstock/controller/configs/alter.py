"""AlterConfigs and IncrementalAlterConfigs: settings of topics, brokers and groups. PURE.

Each resource succeeds or fails independently. All resulting settings of a resource are validated
together before any record is made.

ELR (KIP-966) depends on min.insync.replicas: eligible replicas were determined with one value for
the whole cluster, and under another value acknowledged records may be on other replicas. So single
brokers cannot override it while ELR is enabled, and changing it clears the eligible replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from penstock.config.log_settings import MIN_INSYNC_REPLICAS
from penstock.config.setting import SettingType
from penstock.controller.configs.checks import check_resource, check_values, setting_of
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import elr_enabled
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import BROKER, TOPIC, ConfigResource, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import ClearElrRecord, PartitionChangeRecord
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Legacy = AlterConfigsRequest.Resource
Incremental = IncrementalAlterConfigsRequest.Resource
# Setting name -> new value; None removes the setting.
ConfigChanges = dict[str, str | None]
ResourceT = TypeVar("ResourceT", Legacy, Incremental)


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, context: ControllerContext
) -> ControllerResult[AlterConfigsResponse]:
    """Settings that the request does not contain return to their default."""
    records, failures = _alter_each(image, request.resources, context, replace_all)
    responses = tuple(
        AlterConfigsResponse.Response(
            error_code=failure.code if failure else ErrorCode.NONE,
            error_message=failure.message if failure else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, failure in zip(request.resources, failures, strict=True)
    )
    return ControllerResult(
        () if request.validate_only else records, AlterConfigsResponse(responses=responses)
    )


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, context: ControllerContext
) -> ControllerResult[IncrementalAlterConfigsResponse]:
    records, failures = _alter_each(image, request.resources, context, apply_operations)
    responses = tuple(
        IncrementalAlterConfigsResponse.Response(
            error_code=failure.code if failure else ErrorCode.NONE,
            error_message=failure.message if failure else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, failure in zip(request.resources, failures, strict=True)
    )
    return ControllerResult(
        () if request.validate_only else records,
        IncrementalAlterConfigsResponse(responses=responses),
    )


def _alter_each(
    image: MetadataImage,
    resources: Sequence[ResourceT],
    context: ControllerContext,
    changes_of: Callable[[MetadataImage, ResourceT], ConfigChanges],
) -> tuple[tuple[object, ...], list[KafkaError | None]]:
    """Return the records, and the error of each resource."""
    counts = Counter(_key(resource) for resource in resources)
    records: list[object] = []
    failures: list[KafkaError | None] = []
    for resource in resources:
        try:
            if counts[_key(resource)] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            names = [config.name for config in resource.configs]
            if len(set(names)) != len(names):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            check_resource(image, *_key(resource))
            altered = _alter(image, _key(resource), changes_of(image, resource), context)
            if len(records) + len(altered) > MAX_RECORDS_PER_DECISION:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "Unable to perform excessively large batch operation.",
                )
            records += altered
            failures.append(None)
        except KafkaError as error:
            failures.append(error)
    return tuple(records), failures


def _key(resource: Legacy | Incremental) -> ConfigResource:
    return resource.resource_type, resource.resource_name


def _alter(
    image: MetadataImage, key: ConfigResource, changes: ConfigChanges, context: ControllerContext
) -> list[object]:
    """Return the records of one resource. Those of a broker are written even without a change:
    Kafka's tools rely on that to make the broker reload a file (KAFKA-14136)."""
    current = image.configs.get(key, {})
    after = {name: value for name, value in {**current, **changes}.items() if value is not None}
    _check_min_insync(image, key, changes)
    check_values(image, key, after, changes, context)
    altered = {
        name: value
        for name, value in changes.items()
        if value != current.get(name) or (key[0] == BROKER and value is not None)
    }
    records = [
        ConfigRecord(resource_type=key[0], resource_name=key[1], name=name, value=value)
        for name, value in altered.items()
    ]
    return [*records, *_clear_elr(image, key, altered)]


def replace_all(image: MetadataImage, resource: Legacy) -> ConfigChanges:
    """Set the given settings and remove all others."""
    _refuse_nulls([config.name for config in resource.configs if config.value is None])
    given: ConfigChanges = {config.name: config.value for config in resource.configs}
    removed: ConfigChanges = {
        name: None for name in image.configs.get(_key(resource), {}) if name not in given
    }
    return given | removed


def apply_operations(image: MetadataImage, resource: Incremental) -> ConfigChanges:
    """Set, delete, append to or subtract from the given settings."""
    _refuse_nulls(
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != DELETE
        ]
    )
    current = image.configs.get(_key(resource), {})
    return {
        config.name: _apply_operation(resource.resource_type, config, current.get(config.name))
        for config in resource.configs
    }


def _refuse_nulls(names: list[str]) -> None:
    if names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}"
        )


def _apply_operation(
    resource_type: int, config: Incremental.Config, current: str | None
) -> str | None:
    """Return the new value of a setting."""
    operation, given = config.config_operation, config.value or ""
    if operation not in _OPERATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    if operation == SET:
        return given
    if operation == DELETE:
        return None
    setting = setting_of(resource_type, config.name)
    if setting is None or setting.type is not SettingType.LIST:
        reason = (
            f"Can't {_OPERATIONS[operation]} to key {config.name} because its type is not LIST."
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    default = None if setting.required else setting.format(setting.default_value())
    items = _items(default if current is None else current)
    if operation == APPEND:
        return ",".join(dict.fromkeys(items + _items(given)))
    return ",".join(item for item in items if item not in _items(given))


def _items(text: str | None) -> list[str]:
    return [item for item in (part.strip() for part in (text or "").split(",")) if item]


def _check_min_insync(
    image: MetadataImage, resource: ConfigResource, changes: Mapping[str, str | None]
) -> None:
    resource_type, name = resource
    setting = MIN_INSYNC_REPLICAS.name
    if resource_type != BROKER or setting not in changes or not elr_enabled(image):
        return
    if name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if changes[setting] is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def _clear_elr(
    image: MetadataImage, resource: ConfigResource, altered: Mapping[str, str | None]
) -> list[object]:
    """Clear the eligible replicas that depend on an altered min.insync.replicas.

    The record clears them for every partition of the topic. Where the ISR is still too small, they
    are restored: nothing can be committed without them. Otherwise committed records would be lost
    with the last member of the ISR, or a partition without ISR would never get a leader again.
    """
    resource_type, name = resource
    if MIN_INSYNC_REPLICAS.name not in altered or not elr_enabled(image):
        return []
    topics = [image.topics[name]] if resource_type == TOPIC else list(image.topics.values())
    restored = [
        PartitionChangeRecord(
            topic_id=topic.id,
            partition_id=index,
            eligible_leader_replicas=state.eligible_leader_replicas,
            last_known_elr=state.last_known_elr,
        )
        for topic in topics
        for index, state in topic.partitions.items()
        if len(state.isr) < _min_insync(image, topic.name, resource_type, altered)
        and (state.eligible_leader_replicas or state.last_known_elr)
    ]
    return [ClearElrRecord(topic_name=name if resource_type == TOPIC else ""), *restored]


def _min_insync(
    image: MetadataImage, topic: str, resource_type: int, altered: Mapping[str, str | None]
) -> int:
    """Return min.insync.replicas of a topic after the change. The cluster-wide value, which always
    exists with ELR, applies to topics without an own one."""
    setting = MIN_INSYNC_REPLICAS.name
    own = image.topic_configs(topic).get(setting)
    value = altered[setting] if resource_type == TOPIC or own is None else own
    if value is None:
        value = image.configs.get((BROKER, ""), {}).get(setting)
    return 1 if value is None else int(value)
