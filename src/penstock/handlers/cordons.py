"""Checks cordoned.log.dirs of a broker before the active controller decides: only the broker itself
knows its log directories (KIP-1066).

As in Kafka, a broker refuses paths that are not in its log.dirs, and a node that is no broker
checks nothing. Kafka's brokers refuse all configs of other brokers. Here a broker refuses only
paths, so that `*` cordons a broker that is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from penstock.config.checks import check_cordons
from penstock.config.node_settings import ALL_LOG_DIRS, CORDONED_LOG_DIRS
from penstock.config.setting import InconsistentSettingsError, InvalidSettingError
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BROKER, MetadataImage


class ConfigResource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


ResourceT = TypeVar("ResourceT", bound=ConfigResource)
# Returns the new values that a resource of a request asks for. Raises KafkaError.
Changes = Callable[[MetadataImage, ResourceT], Mapping[str, str | None]]


def refused_cordons(
    broker: DynamicBrokerConfig, resources: Sequence[ResourceT], changes_of: Changes[ResourceT]
) -> dict[int, KafkaError]:
    """Return the refusals by the index of the resource. `broker` has the configs of this node. The
    controller refuses resources that occur twice."""
    if not broker.config.is_broker:
        return {}
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    refusals: dict[int, KafkaError] = {}
    for index, resource in enumerate(resources):
        name = resource.resource_name
        if resource.resource_type == BROKER and name and counts[BROKER, name] == 1:
            try:
                _check(broker, name, changes_of(broker.image, resource))
            except KafkaError as error:
                refusals[index] = error
    return refusals


def _check(broker: DynamicBrokerConfig, name: str, changes: Mapping[str, str | None]) -> None:
    value = changes.get(CORDONED_LOG_DIRS.name)
    if value is None:
        return
    try:
        paths = CORDONED_LOG_DIRS.parse(value)
        if name == str(broker.config.node_id):
            check_cordons(paths, broker.config.log_dirs)
        elif any(path != ALL_LOG_DIRS for path in paths):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.config.node_id}, but received {name}. "
                f"Only broker {name} knows its log directories: send {CORDONED_LOG_DIRS.name} to "
                "it",
            )
    except (InvalidSettingError, InconsistentSettingsError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
