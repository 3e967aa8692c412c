"""AlterConfigs and IncrementalAlterConfigs: settings of topics, brokers and groups. PURE.

Each resource succeeds or fails on its own. What the settings of a resource come to is checked as a
whole before a record is made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.config.setting import SettingType
from penstock.controller.configs.checks import check_resource, check_values, setting_of
from penstock.controller.configs.elr import check_min_insync, forget_eligible
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_RECORDS_PER_DECISION
from penstock.metadata.image import BROKER, ConfigResource, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Legacy = AlterConfigsRequest.Resource
Incremental = IncrementalAlterConfigsRequest.Resource
# What a resource's settings become: a value for each name that is spoken of, None where it is taken
# away.
Changes = dict[str, str | None]
ResourceT = TypeVar("ResourceT", Legacy, Incremental)


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, node: ControllerContext
) -> Decision[AlterConfigsResponse]:
    """What is not named goes back to its default."""
    records, failures = _alter_each(image, request.resources, node, _replaced)
    responses = tuple(
        AlterConfigsResponse.Response(
            error_code=failure.code if failure else ErrorCode.NONE,
            error_message=failure.message if failure else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, failure in zip(request.resources, failures, strict=True)
    )
    return Decision(
        () if request.validate_only else records, AlterConfigsResponse(responses=responses)
    )


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, node: ControllerContext
) -> Decision[IncrementalAlterConfigsResponse]:
    records, failures = _alter_each(image, request.resources, node, _changed)
    responses = tuple(
        IncrementalAlterConfigsResponse.Response(
            error_code=failure.code if failure else ErrorCode.NONE,
            error_message=failure.message if failure else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, failure in zip(request.resources, failures, strict=True)
    )
    return Decision(
        () if request.validate_only else records,
        IncrementalAlterConfigsResponse(responses=responses),
    )


def _alter_each(
    image: MetadataImage,
    resources: Sequence[ResourceT],
    node: ControllerContext,
    changes_of: Callable[[MetadataImage, ResourceT], Changes],
) -> tuple[tuple[object, ...], list[KafkaError | None]]:
    """The records, and for each resource why it was refused."""
    times = Counter(_key(resource) for resource in resources)
    records: list[object] = []
    failures: list[KafkaError | None] = []
    for resource in resources:
        try:
            if times[_key(resource)] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            names = [config.name for config in resource.configs]
            if len(set(names)) != len(names):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            check_resource(image, *_key(resource))
            altered = _alter(image, _key(resource), changes_of(image, resource), node)
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
    image: MetadataImage, key: ConfigResource, changes: Changes, node: ControllerContext
) -> list[object]:
    """A broker's settings are written even if they stay the same: Kafka's tools do so to make it
    read a file anew (KAFKA-14136)."""
    current = image.configs.get(key, {})
    after = {name: value for name, value in {**current, **changes}.items() if value is not None}
    check_min_insync(image, key, changes)
    check_values(image, key, after, changes, node)
    altered = {
        name: value
        for name, value in changes.items()
        if value != current.get(name) or (key[0] == BROKER and value is not None)
    }
    records = [
        ConfigRecord(resource_type=key[0], resource_name=key[1], name=name, value=value)
        for name, value in altered.items()
    ]
    return [*records, *forget_eligible(image, key, altered)]


def _replaced(image: MetadataImage, resource: Legacy) -> Changes:
    """The settings given, and the end of all others."""
    _refuse_nulls([config.name for config in resource.configs if config.value is None])
    given: Changes = {config.name: config.value for config in resource.configs}
    gone: Changes = {
        name: None for name in image.configs.get(_key(resource), {}) if name not in given
    }
    return given | gone


def _changed(image: MetadataImage, resource: Incremental) -> Changes:
    _refuse_nulls(
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != DELETE
        ]
    )
    current = image.configs.get(_key(resource), {})
    return {
        config.name: _operated(resource.resource_type, config, current.get(config.name))
        for config in resource.configs
    }


def _refuse_nulls(names: list[str]) -> None:
    if names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names)}"
        )


def _operated(resource_type: int, config: Incremental.Config, current: str | None) -> str | None:
    """What one operation makes of a value."""
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
