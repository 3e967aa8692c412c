"""Validates dynamic settings: that the resource exists, the settings are dynamic and the values
valid. Error messages are Kafka's. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config.group_settings import (
    GROUP_SETTINGS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
)
from penstock.config.listeners import connection_overrides
from penstock.config.node_settings import MAX_CONNECTIONS_PER_IP_OVERRIDES
from penstock.config.setting import (
    Dynamic,
    InconsistentSettingsError,
    InvalidSettingError,
    Setting,
)
from penstock.config.settings import find_setting, find_unsupported
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.controller.decision import ControllerContext
from penstock.controller.topics.names import check_topic_name
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, GROUP, TOPIC, ConfigResource, MetadataImage

_NUMBER = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def setting_of(resource_type: int, name: str) -> Setting[Any] | None:
    if resource_type == GROUP:
        return GROUP_SETTINGS[name].setting if name in GROUP_SETTINGS else None
    return TOPIC_SETTINGS.get(name) if resource_type == TOPIC else find_setting(name)


def check_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    """Raise KafkaError if the resource does not exist. A broker without a name stands for all
    brokers. A group need not exist yet."""
    if resource_type == TOPIC:
        _check_topic(image, name)
    elif resource_type == BROKER:
        _check_broker(image, name)
    elif resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _check_topic(image: MetadataImage, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in image.topics:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )


def _check_broker(image: MetadataImage, name: str) -> None:
    if not name:
        return
    if not _NUMBER.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        )
    # Settings are stored under the canonical form of the id: 01 would be another resource.
    if int(name) not in image.brokers or str(int(name)) != name:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def check_values(
    image: MetadataImage,
    resource: ConfigResource,
    after: Mapping[str, str],
    changes: Iterable[str],
    context: ControllerContext,
) -> None:
    """Raise KafkaError if the settings are invalid. `after` has all settings that the resource
    would have, `changes` the names of the altered ones."""
    if resource[0] == TOPIC:
        context.broker_configs.at(image).log_config(after)
        return
    given = {name: after[name] for name in changes if name in after}
    if resource[0] == GROUP:
        _check_group_names(given)
        _check_group_values(context.broker_configs.at(image), after)
    else:
        _check_broker_values(given, for_all=not resource[1])


def _check_group_names(given: Iterable[str]) -> None:
    for name in given:
        if name not in GROUP_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")


def _check_group_values(broker: DynamicBrokerConfig, after: Mapping[str, str]) -> None:
    """Validate all settings of the group, with the broker's values as defaults: as in Kafka, they
    must be consistent."""
    try:
        values = {
            name: group.setting.parse(after[name]) if name in after else broker[group.default]
            for name, group in GROUP_SETTINGS.items()
        }
    except InvalidSettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    for name, group in GROUP_SETTINGS.items():
        if values[name] < broker[group.least]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} must be greater than or equal to {group.least.name}",
            )
        if values[name] > broker[group.most]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {group.most.name}"
            )
    session, heartbeat = SESSION_TIMEOUT_MS.setting.name, HEARTBEAT_INTERVAL_MS.setting.name
    if values[session] <= values[heartbeat]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def _check_broker_values(given: Mapping[str, str], *, for_all: bool) -> None:
    """Validate only the settings of this request: one that an earlier release accepted must not
    block all others. As in Kafka, unknown names are kept: another release may know them.

    As in Kafka, an invalid value is INVALID_REQUEST for brokers and INVALID_CONFIG for topics
    (KAFKA-13609).
    """
    for name, value in given.items():
        _check_supported(name, value)
    # With those of a listener, as listener.name.<name>.ssl.keystore.location.
    settings = {name: setting for name in given if (setting := find_setting(name)) is not None}
    read_only = [name for name, setting in settings.items() if setting.dynamic is Dynamic.READ_ONLY]
    if read_only:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: Set({', '.join(read_only)})",
        )
    per_broker = [
        name for name, setting in settings.items() if setting.dynamic is Dynamic.PER_BROKER
    ]
    if for_all and per_broker:
        reason = (
            "Cannot update these configs at default cluster level, broker id must be "
            f"specified: Set({', '.join(per_broker)})"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    for name, setting in settings.items():
        try:
            setting.parse(given[name])
            if setting is MAX_CONNECTIONS_PER_IP_OVERRIDES:
                connection_overrides(given[name])
        except (InvalidSettingError, InconsistentSettingsError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_supported(name: str, value: str) -> None:
    unsupported = None if find_setting(name) is not None else find_unsupported(name)
    reason = unsupported.refusal(name, value) if unsupported else None
    if reason:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
