"""What may be altered: which resources there are, and which settings of them take which values
while the cluster runs. PURE.

Knows values as texts and Kafka's words for refusing them; never how a request puts them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config.group_own_settings import (
    GROUP_SETTINGS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
)
from penstock.config.nearest import did_you_mean
from penstock.config.setting import Dynamic, InvalidSettingError, Setting
from penstock.config.settings import NODE_SETTINGS
from penstock.config.topic import log_config
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.config.unbuilt import find_unbuilt
from penstock.controller.configs.effective import DynamicBroker
from penstock.controller.context import ControllerContext
from penstock.controller.topics.names import check_topic_name
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, GROUP, TOPIC, ConfigResource, MetadataImage

_NUMBER = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def setting_of(resource_type: int, name: str) -> Setting[Any] | None:
    if resource_type == GROUP:
        return GROUP_SETTINGS[name].setting if name in GROUP_SETTINGS else None
    return (TOPIC_SETTINGS if resource_type == TOPIC else NODE_SETTINGS).get(name)


def check_resource(image: MetadataImage, resource_type: int, name: str) -> None:
    """KafkaError where there is no such thing to alter. A broker without a name stands for all of
    them; a group need not be there yet."""
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
    # Settings are found by the id's plain form, so +1 or 01 would be another resource.
    if int(name) not in image.brokers or str(int(name)) != name:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def check_values(
    image: MetadataImage,
    resource: ConfigResource,
    after: Mapping[str, str],
    changes: Iterable[str],
    node: ControllerContext,
) -> None:
    """All settings that the resource would have, of which `changes` are spoken of. KafkaError where
    they cannot be used."""
    if resource[0] == TOPIC:
        log_config(DynamicBroker(image, node.broker), after)
        return
    given = {name: after[name] for name in changes if name in after}
    if resource[0] == GROUP:
        _check_group_names(given)
        _check_group_values(DynamicBroker(image, node.broker), after)
    else:
        _check_broker_values(given, for_all=not resource[1])


def _check_group_names(given: Iterable[str]) -> None:
    for name in given:
        if name not in GROUP_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")


def _check_group_values(broker: DynamicBroker, after: Mapping[str, str]) -> None:
    """What the group would have, with the broker's values where it has none of its own: as in
    Kafka, that must fit together too."""
    try:
        values = {
            name: own.setting.parse(after[name]) if name in after else broker[own.default]
            for name, own in GROUP_SETTINGS.items()
        }
    except InvalidSettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    for name, own in GROUP_SETTINGS.items():
        if values[name] < broker[own.least]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} must be greater than or equal to {own.least.name}",
            )
        if values[name] > broker[own.most]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {own.most.name}"
            )
    session, heartbeat = SESSION_TIMEOUT_MS.setting.name, HEARTBEAT_INTERVAL_MS.setting.name
    if values[session] <= values[heartbeat]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def _check_broker_values(given: Mapping[str, str], *, for_all: bool) -> None:
    """Only what is given now: a setting that an earlier release let in must not be in the way of
    all others.

    That a value cannot be used is INVALID_REQUEST for brokers, and INVALID_CONFIG for topics; both
    are Kafka's (KAFKA-13609).
    """
    settings = {name: _broker_setting(name, value) for name, value in given.items()}
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
        except InvalidSettingError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _broker_setting(name: str, value: str) -> Setting[Any]:
    setting = NODE_SETTINGS.get(name)
    if setting is not None:
        return setting
    unbuilt = find_unbuilt(name)
    reason = unbuilt.refusal(name, value) if unbuilt else None
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        reason or f"Unknown broker config name: {name}.{did_you_mean(name, NODE_SETTINGS)}",
    )
