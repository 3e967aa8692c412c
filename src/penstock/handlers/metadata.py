"""Metadata: the brokers, the topics and the leader of each partition.

Behaviour
  Brokers have their endpoints on the client's listener. Topics are requested by name, by id, or all
  at once. A missing topic is created with the defaults if the request and auto.create.topics.enable
  both allow it, and returned when it is usable. Every broker accepts requests for the controller,
  so this broker names itself as the controller. If a leader is gone, the response waits for the
  election of the next one.

Version notes
  All topics are an empty list in v0 and null from v1 on. v4 lets the client forbid creation. v12
  adds ids; with an id in an earlier version every topic is INVALID_REQUEST. v13 adds a top-level
  error, which is always NONE.

Not implemented
  Authorized operations: always unknown (-2147483648).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import AUTO_CREATE_TOPICS_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.topic_view import (
    INTERNAL_TOPICS,
    absence,
    live_brokers,
    offline_replicas,
    partition_error,
)
from penstock.ids import NO_UUID
from penstock.metadata.image import TopicImage
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.broker.controllers import Controllers
    from penstock.node.metadata import MetadataView

Topic = MetadataResponse.Topic

# A client that has just come asks at once, and wants to know at once.
_COMING_S = 0.1
_HEARD_WITHIN_S = 0.02

Refused = Mapping[str, KafkaError | None]


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
        return _response(
            parts,
            context,
            [
                _described(topic, live_brokers(parts))
                for topic in parts.metadata.image.topics.values()
            ],
        )
    if context.version < 12 and any(
        asked.name is None or asked.topic_id != NO_UUID for asked in request.topics
    ):
        refused = [
            Topic(
                error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
            )
            for asked in request.topics
        ]
        return _response(parts, context, refused)
    missing = _to_create(parts, request)
    if missing:
        return _create(parts, request, context, missing)
    if len(parts.metadata.image.brokers) == 1:
        return _answer(parts, request, context, {})
    return _answer_later(parts, request, context)


def _to_create(parts: Parts, request: MetadataRequest) -> list[str]:
    if not (request.allow_auto_topic_creation and parts.config[AUTO_CREATE_TOPICS_ENABLE]):
        return []
    names = dict.fromkeys(
        asked.name
        for asked in request.topics or ()
        if asked.name is not None and asked.topic_id == NO_UUID
    )
    return [
        name
        for name in names
        if name not in parts.metadata.image.topics
        and absence(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


async def _answer_later(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    """A client that asks on a connection that it has had for a while may have lost a leader. This
    broker may hear of it a little later."""
    if context.received - context.visit.began > _COMING_S:
        await asyncio.sleep(_HEARD_WITHIN_S)
    await parts.metadata.wait_leaders(
        [
            asked.name or parts.metadata.image.topic_names.get(asked.topic_id, "")
            for asked in request.topics or ()
        ]
    )
    return _answer(parts, request, context, {})


async def _create(
    parts: Parts, request: MetadataRequest, context: RequestContext, missing: list[str]
) -> MetadataResponse:
    try:
        refused: Refused = await parts.controllers.create_missing(missing)
    except KafkaError as error:
        refused = dict.fromkeys(missing, error)
    return _answer(parts, request, context, refused)


def _answer(
    parts: Parts, request: MetadataRequest, context: RequestContext, refused: Refused
) -> MetadataResponse:
    live = live_brokers(parts)
    asked = dict.fromkeys(
        (topic.name if topic.topic_id == NO_UUID else None, topic.topic_id)
        for topic in request.topics or ()
    )
    return _response(
        parts, context, [_find(parts, name, topic_id, live, refused) for name, topic_id in asked]
    )


def _find(
    parts: Parts, name: str | None, topic_id: UUID, live: set[int], refused: Refused
) -> Topic:
    image = parts.metadata.image
    if name is None:
        found = image.topics.get(image.topic_names.get(topic_id, ""))
        return (
            Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            if found is None
            else _described(found, live)
        )
    found = image.topics.get(name)
    if found is not None:
        return _described(found, live)
    error = refused.get(name)
    code = absence(name) if error is None else error.code
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        # Another client's request has just decided to create it, and is not committed yet: this
        # client may ask again.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return Topic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _described(topic: TopicImage, live: set[int]) -> Topic:
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
    )


def _response(parts: Parts, context: RequestContext, topics: list[Topic]) -> MetadataResponse:
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
    )
