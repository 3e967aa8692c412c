"""Describe and alter configs of topics, brokers, loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from penstock.client.cluster import CONTROLLERS, Cluster
from penstock.client.errors import check
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

T = TypeVar("T")

_SET = 0
_DELETE = 1


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A config's value at one source. The first synonym of a config is in effect."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()


async def list_config_resources(cluster: Cluster, kind: ConfigResourceType) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=(kind,))

    async def attempt() -> list[str]:
        response = await cluster.call(request, ListConfigResourcesResponse)
        check(response.error_code, "ListConfigResources failed")
        return [resource.resource_name for resource in response.config_resources]

    return await cluster.retry(attempt)


async def describe_configs(
    cluster: Cluster, kind: ConfigResourceType, name: str
) -> list[ConfigEntry]:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)

    async def attempt() -> list[ConfigEntry]:
        response = await _call(cluster, kind, name, request, DescribeConfigsResponse)
        for result in response.results:
            check(
                result.error_code,
                result.error_message or f"cannot describe the configs of {name}",
            )
        return [_config_entry(config) for result in response.results for config in result.configs]

    return await cluster.retry(attempt)


async def alter_configs(
    cluster: Cluster,
    kind: ConfigResourceType,
    name: str,
    *,
    put: Mapping[str, str],
    delete: Iterable[str],
    validate_only: bool,
) -> None:
    config = IncrementalAlterConfigsRequest.Resource.Config
    changes = [config(name=key, config_operation=_SET, value=value) for key, value in put.items()]
    changes += [config(name=key, config_operation=_DELETE, value=None) for key in delete]
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configs=tuple(changes)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)

    async def attempt() -> None:
        response = await _call(cluster, kind, name, request, IncrementalAlterConfigsResponse)
        for result in response.responses:
            check(
                result.error_code, result.error_message or f"the configs of {name} were not altered"
            )

    await cluster.retry(attempt)


async def _call(
    cluster: Cluster, kind: ConfigResourceType, name: str, request: object, response: type[T]
) -> T:
    """Send to any broker, but a broker's own configs and loggers to that broker: only it has
    them. Controllers alter the dynamic configs of brokers, too."""
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and name:
        node_id = int(name)
        if cluster.endpoint_type != CONTROLLERS or node_id in cluster.metadata.brokers:
            return await (await cluster.broker(node_id)).call(request, response)
    return await cluster.call(request, response)


def _config_entry(config: DescribeConfigsResponse.Result.Config) -> ConfigEntry:
    synonyms = tuple(
        ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms
    )
    return ConfigEntry(
        config.name,
        config.value,
        config.config_source,
        config.read_only,
        config.is_sensitive,
        synonyms,
    )
