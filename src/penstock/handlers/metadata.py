"""Metadata: the brokers, the topics and the leader of each partition.

Behaviour
  Brokers have their endpoints on the client's listener. Topics are requested by name, by id, or all
  at once. A missing topic is created with the defaults if the request and auto.create.topics.enable
  both allow it, and returned when it is usable. Every broker accepts requests for the controller,
  so this broker names itself as the controller. If a leader is gone, the response waits for the
  election of the next one.

Version notes
  All topics are an empty list in v0 and null from v1 on. v4 lets the client forbid creation. v8
  returns the authorized operations of topics on request, and up to v10 those of the cluster. v12
  adds ids; with an id in an earlier version every topic is INVALID_REQUEST. v13 adds a top-level
  error, which is always NONE.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import AUTO_CREATE_TOPICS_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.authorized_operations import ResourceType, authorized_operations
from penstock.handlers.context import RequestContext
from penstock.handlers.topic_view import (
    INTERNAL_TOPICS,
    absence,
    live_brokers,
    offline_replicas,
    partition_error,
)
from penstock.ids import NO_UUID
from penstock.metadata.image import MetadataImage, TopicImage
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.broker.controllers import Controllers
    from penstock.node.metadata import MetadataView

Topic = MetadataResponse.Topic
# The error of each topic that could not be created.
CreationErrors = Mapping[str, KafkaError | None]

# A request this soon after its connection was opened comes from a new client, which has lost no
# leader.
_NEW_CONNECTION_S = 0.1
# This broker may notice a lost leader a little later than the client.
_DISCONNECT_DELAY_S = 0.02


class Parts(Protocol):
    config: NodeConfig
    node_id: int
    cluster_id: str
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        live = live_brokers(parts)
        topics = parts.metadata.image.topics.values()
        operations = _topic_operations(request)
        return _response(
            parts, request, context, [_topic(topic, live, operations) for topic in topics]
        )
    if context.version < 12 and any(
        topic.name is None or topic.topic_id != NO_UUID for topic in request.topics
    ):
        invalid = [
            Topic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in request.topics
        ]
        return _response(parts, request, context, invalid)
    missing = _to_create(parts, request)
    if missing:
        return _create_and_describe(parts, request, context, missing)
    if len(parts.metadata.image.brokers) == 1:
        return _describe(parts, request, context, {})
    return _describe_after_election(parts, request, context)


def _to_create(parts: Parts, request: MetadataRequest) -> list[str]:
    if not (request.allow_auto_topic_creation and parts.config[AUTO_CREATE_TOPICS_ENABLE]):
        return []
    names = dict.fromkeys(
        topic.name
        for topic in request.topics or ()
        if topic.name is not None and topic.topic_id == NO_UUID
    )
    return [
        name
        for name in names
        if name not in parts.metadata.image.topics
        and absence(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


async def _create_and_describe(
    parts: Parts, request: MetadataRequest, context: RequestContext, missing: list[str]
) -> MetadataResponse:
    try:
        errors: CreationErrors = await parts.controllers.create_missing(missing)
    except KafkaError as error:
        errors = dict.fromkeys(missing, error)
    return _describe(parts, request, context, errors)


async def _describe_after_election(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    """Respond when all leaders are connected. A client that sends Metadata on a connection that it
    has had for a while may have lost a leader."""
    if context.received - context.connection.opened > _NEW_CONNECTION_S:
        await asyncio.sleep(_DISCONNECT_DELAY_S)
    topic_names = parts.metadata.image.topic_names
    await parts.metadata.wait_leaders(
        [topic.name or topic_names.get(topic.topic_id, "") for topic in request.topics or ()]
    )
    return _describe(parts, request, context, {})


def _describe(
    parts: Parts, request: MetadataRequest, context: RequestContext, errors: CreationErrors
) -> MetadataResponse:
    live = live_brokers(parts)
    requested = dict.fromkeys(
        (topic.name if topic.topic_id == NO_UUID else None, topic.topic_id)
        for topic in request.topics or ()
    )
    image = parts.metadata.image
    operations = _topic_operations(request)
    topics = [
        _topic_with_id(image, topic_id, live, operations)
        if name is None
        else _topic_with_name(image, name, live, operations, errors)
        for name, topic_id in requested
    ]
    return _response(parts, request, context, topics)


def _topic_operations(request: MetadataRequest) -> int:
    return authorized_operations(ResourceType.TOPIC, request.include_topic_authorized_operations)


def _topic_with_id(image: MetadataImage, topic_id: UUID, live: set[int], operations: int) -> Topic:
    topic = image.topics.get(image.topic_names.get(topic_id, ""))
    if topic is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(topic, live, operations)


def _topic_with_name(
    image: MetadataImage, name: str, live: set[int], operations: int, errors: CreationErrors
) -> Topic:
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(topic, live, operations)
    error = errors.get(name)
    code = absence(name) if error is None else error.code
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        # Another request creates the topic and is not committed yet. This client may retry.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return Topic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _topic(topic: TopicImage, live: set[int], operations: int) -> Topic:
    partitions = tuple(
        Topic.Partition(
            error_code=partition_error(state, live),
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            offline_replicas=offline_replicas(state, live),
        )
        for index, state in topic.partitions.items()
    )
    return Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _response(
    parts: Parts, request: MetadataRequest, context: RequestContext, topics: list[Topic]
) -> MetadataResponse:
    brokers = tuple(
        MetadataResponse.Broker(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in parts.metadata.advertised(
            context.listener_name, context.local_host
        )
    )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=parts.cluster_id,
        controller_id=parts.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=authorized_operations(
            ResourceType.CLUSTER, request.include_cluster_authorized_operations
        ),
    )
