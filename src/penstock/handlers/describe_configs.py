"""DescribeConfigs: the configs of topics, brokers and groups, with their values and sources, and
the levels of this broker's loggers.

Behaviour
  A topic has all topic configs: its own values, or the broker's, or Kafka's defaults. This broker
  has all broker configs. A broker resource with an empty name has the dynamic defaults of all
  brokers. INVALID_REQUEST for another broker: a client must ask that broker. A group, even one that
  does not exist, has the configs of consumer groups: its own values, or the broker's. Passwords are
  never shown. Internal configs are shown only if they are set. Dynamic broker configs that this
  release does not know are shown without their values. configuration_keys limits the response to
  these names. A resource that a request repeats is described once.

Version notes
  v3 adds the type of a config, and its documentation on request.

Not implemented
  Client metrics subscriptions: INVALID_REQUEST. Configs of share and streams groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Protocol

from penstock.config.setting import ConfigSource
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.controller.topics.names import check_topic_name
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import loggers
from penstock.handlers.config_entries import (
    Entry,
    broker_entries,
    default_broker_entries,
    group_entries,
    topic_entry,
)
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.loggers import BROKER_LOGGER
from penstock.limits import DESCRIBED_RESOURCES_A_TURN
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

Result = DescribeConfigsResponse.Result
Resource = DescribeConfigsRequest.Resource


class Parts(Protocol):
    node_id: int
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeConfigsRequest, _context: RequestContext
) -> DescribeConfigsResponse | Exclusive[DescribeConfigsResponse]:
    # Each resource once: a request has room for a broker 100,000 times.
    resources = list(dict.fromkeys(request.resources))
    if len(resources) > DESCRIBED_RESOURCES_A_TURN:
        return Exclusive(_describe_many(parts, request, resources))
    return DescribeConfigsResponse(
        results=tuple(_describe(parts, request, resource) for resource in resources)
    )


async def _describe_many(
    parts: Parts, request: DescribeConfigsRequest, resources: list[Resource]
) -> DescribeConfigsResponse:
    results: list[Result] = []
    for start in range(0, len(resources), DESCRIBED_RESOURCES_A_TURN):
        some = resources[start : start + DESCRIBED_RESOURCES_A_TURN]
        results += [_describe(parts, request, resource) for resource in some]
        await asyncio.sleep(0)
    return DescribeConfigsResponse(results=tuple(results))


def _describe(parts: Parts, request: DescribeConfigsRequest, resource: Resource) -> Result:
    try:
        names = resource.configuration_keys or None
        if resource.resource_type == BROKER_LOGGER:
            found = _loggers(parts, resource.resource_name)
        else:
            entries = _entries(parts, resource.resource_type, resource.resource_name)
            found = [_config(entry, request) for entry in entries]
        configs = tuple(config for config in found if names is None or config.name in names)
    except KafkaError as error:
        return Result(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return Result(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _loggers(parts: Parts, name: str) -> list[Result.Config]:
    loggers.check_node(parts.node_id, name)
    return [
        Result.Config(name=name, value=level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER)
        for name, level in loggers.levels().items()
    ]


def _entries(parts: Parts, resource_type: int, name: str) -> Collection[Entry]:
    broker = parts.metadata.broker_config
    if resource_type == TOPIC:
        return list(_topic_entries(parts, broker, name))
    if resource_type == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker, name)
    if resource_type != BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {resource_type} have no configs here",
        )
    if name == "":
        return default_broker_entries(broker)
    if name != str(parts.node_id):
        reason = (
            f"Unexpected broker id, expected {parts.node_id} or empty string, but received {name}"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return broker_entries(broker)


def _topic_entries(parts: Parts, broker: DynamicBrokerConfig, name: str) -> Iterator[Entry]:
    check_topic_name(name)
    parts.metadata.topic(name)
    overrides = dict(parts.metadata.image.topic_configs(name))
    for effective in broker.topic_settings(overrides):
        yield topic_entry(broker, effective)


def _config(entry: Entry, request: DescribeConfigsRequest) -> Result.Config:
    return Result.Config(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.setting.sensitive,
        synonyms=entry.synonyms if request.include_synonyms else (),
        config_type=entry.setting.type,
        documentation=(entry.setting.doc or None) if request.include_documentation else None,
    )
