"""Metadata: the brokers, the topics and the leader of each partition.

Behaviour
  Brokers have their endpoints on the client's listener. Topics are requested by name, by id, or all
  at once. A missing topic is created with the defaults if the request and auto.create.topics.enable
  both allow it, and returned when it is usable. Every broker accepts requests for the controller,
  so this broker names itself as the controller. If a leader is gone, the response waits for the
  election of the next one. Topics are encoded once and cached; a response that needs more than a
  slice of encoding is built over several turns of the event loop.

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
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import AUTO_CREATE_TOPICS_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.authorized_operations import ResourceType, authorized_operations
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.encoded_topics import Encode, EncodedTopics, Form
from penstock.handlers.topic_view import INTERNAL_TOPICS, absence, live_brokers
from penstock.ids import NO_UUID
from penstock.metadata.image import MetadataImage, TopicImage
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schema import EncodedArray

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
# The event loop reports a lost leader up to so many turns later than it reads the request of a
# client that lost it too.
_DISCONNECT_TURNS = 3


class Parts(Protocol):
    config: NodeConfig
    node_id: int
    cluster_id: str
    metadata: MetadataView
    controllers: Controllers
    encoded_topics: EncodedTopics


def handle(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Exclusive[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        return _respond(
            parts,
            request,
            context,
            partial(
                parts.encoded_topics.all_topics,
                parts.metadata.image.topics,
                _form(request, context),
                live_brokers(parts),
            ),
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
        return _response(parts, request, context, tuple(invalid))
    missing = _to_create(parts, request)
    if missing:
        return Exclusive(_create_and_describe(parts, request, context, missing))
    if parts.metadata.has_disconnected_leader(_names(parts, request)) or (
        len(parts.metadata.image.brokers) > 1
        and context.received - context.connection.opened > _NEW_CONNECTION_S
    ):
        return Exclusive(_describe_after_election(parts, request, context))
    return _describe(parts, request, context, {})


def _names(parts: Parts, request: MetadataRequest) -> list[str]:
    topic_names = parts.metadata.image.topic_names
    return [topic.name or topic_names.get(topic.topic_id, "") for topic in request.topics or ()]


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
    return await _in_slices(_describe(parts, request, context, errors))


async def _describe_after_election(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    """Respond when all leaders are connected. A client that sends Metadata on a connection that it
    has had for a while may have lost a leader."""
    for _ in range(_DISCONNECT_TURNS):
        await asyncio.sleep(0)
    await parts.metadata.wait_leaders(_names(parts, request))
    return await _in_slices(_describe(parts, request, context, {}))


async def _in_slices(
    response: MetadataResponse | Exclusive[MetadataResponse],
) -> MetadataResponse:
    return await response if isinstance(response, Exclusive) else response


def _describe(
    parts: Parts, request: MetadataRequest, context: RequestContext, errors: CreationErrors
) -> MetadataResponse | Exclusive[MetadataResponse]:
    requested = dict.fromkeys(
        (topic.name if topic.topic_id == NO_UUID else None, topic.topic_id)
        for topic in request.topics or ()
    )
    image, form = parts.metadata.image, _form(request, context)
    topics = [
        _topic_with_id(image, topic_id)
        if name is None
        else _topic_with_name(image, name, form.operations, errors)
        for name, topic_id in requested
    ]
    encode = partial(parts.encoded_topics.some_topics, topics, form, live_brokers(parts))
    return _respond(parts, request, context, encode)


def _form(request: MetadataRequest, context: RequestContext) -> Form:
    included = request.include_topic_authorized_operations
    return Form(context.version, authorized_operations(ResourceType.TOPIC, included))


def _topic_with_id(image: MetadataImage, topic_id: UUID) -> TopicImage | Topic:
    topic = image.topics.get(image.topic_names.get(topic_id, ""))
    if topic is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return topic


def _topic_with_name(
    image: MetadataImage, name: str, operations: int, errors: CreationErrors
) -> TopicImage | Topic:
    topic = image.topics.get(name)
    if topic is not None:
        return topic
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


def _respond(
    parts: Parts, request: MetadataRequest, context: RequestContext, encode: Encode
) -> MetadataResponse | Exclusive[MetadataResponse]:
    """Respond now if one slice is enough."""
    topics = parts.encoded_topics.encode_now(encode)
    if topics is not None:
        return _response(parts, request, context, topics)
    return Exclusive(_respond_later(parts, request, context, encode))


async def _respond_later(
    parts: Parts, request: MetadataRequest, context: RequestContext, encode: Encode
) -> MetadataResponse:
    topics = await parts.encoded_topics.encode_later(encode)
    return _response(parts, request, context, topics)


def _response(
    parts: Parts,
    request: MetadataRequest,
    context: RequestContext,
    topics: EncodedArray | tuple[Topic, ...],
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
        topics=topics,  # type: ignore[arg-type]  # see may_be_encoded
        cluster_authorized_operations=authorized_operations(
            ResourceType.CLUSTER, request.include_cluster_authorized_operations
        ),
    )
