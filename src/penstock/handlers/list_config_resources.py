"""ListConfigResources: the names of config resources (KIP-1142; before it
ListClientMetricsResources).

Behaviour
  All topics, brokers and their loggers, and the groups and client metrics subscriptions that have
  configs. An unknown resource type is UNSUPPORTED_VERSION, as in Kafka.

Version notes
  v0 lists client metrics subscriptions only. v1 gives the resource types; an empty list is all of
  them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.loggers import BROKER_LOGGER
from penstock.metadata.image import BROKER, GROUP, TOPIC
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView

CLIENT_METRICS = 16
_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


class Parts(Protocol):
    metadata: MetadataView


def handle(
    parts: Parts, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    types = (
        (CLIENT_METRICS,)
        if context.version == 0
        else tuple(dict.fromkeys(request.resource_types)) or _TYPES
    )
    if not set(types) <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = tuple(
        ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=resource_type)
        for resource_type in types
        for name in _names(parts, resource_type)
    )
    return ListConfigResourcesResponse(config_resources=resources)


def _names(parts: Parts, resource_type: int) -> list[str]:
    if resource_type == TOPIC:
        return sorted(parts.metadata.image.topics)
    if resource_type in (BROKER, BROKER_LOGGER):
        return [str(broker) for broker in sorted(parts.metadata.image.brokers)]
    return sorted(name for kind, name in parts.metadata.image.configs if kind == resource_type)
