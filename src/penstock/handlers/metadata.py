"""Metadata: the brokers, the topics and the leader of each partition.

Behaviour
  Brokers have their endpoints on the client's listener. Topics are requested by name, by id, or all
  at once. A missing topic is created with the defaults if the request and auto.create.topics.enable
  both allow it, and returned when it is usable. Every broker accepts requests for the controller,
  so this broker names itself as the controller. If a leader is gone, the response waits for the
  election of the next one. Topics are encoded once and cached; a response that needs more than a
  slice of encoding is built over several turns of the event loop.

  A client needs DESCRIBE on a topic: without it a topic that it names is
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not, and all topics are those that it may
  describe. Creation needs CREATE on the topic or on the cluster.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.config.node_settings import AUTO_CREATE_TOPICS_ENABLE
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.audit_log import log_change, quoted
from penstock.handlers.authorized_operations import authorized_operations, cluster_operations
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.encoded_topics import EncodedTopics, Form, Slices, next_slice
from penstock.handlers.topic_view import INTERNAL_TOPICS, absence, live_brokers
from penstock.ids import NO_UUID
from penstock.limits import METADATA_SLICE_TOPICS
from penstock.metadata.image import MetadataImage, TopicImage
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.security.acls import AclOperation, ResourceType

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
    is_small = _is_all(request, context) or len(request.topics or ()) <= METADATA_SLICE_TOPICS
    if not is_small or _must_wait(parts, request, context):
        return Exclusive(_respond_later(parts, request, context))
    build = partial(_build, parts, request, context, {})
    response = next_slice(build())
    return Exclusive(parts.encoded_topics.build_later(build)) if response is None else response


def _is_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.version == 0 and not request.topics)


def _is_invalid(request: MetadataRequest, context: RequestContext) -> bool:
    return context.version < 12 and any(
        topic.name is None or topic.topic_id != NO_UUID for topic in request.topics or ()
    )


def _must_wait(parts: Parts, request: MetadataRequest, context: RequestContext) -> bool:
    """Return True if topics must be created, or leaders may have to be elected."""
    if _is_all(request, context) or _is_invalid(request, context):
        return False
    topics = request.topics or ()
    return (
        bool(_to_create(parts, request, topics, context))
        or parts.metadata.has_disconnected_leader(_names(parts, topics, context))
        or _may_have_lost_leader(parts, context)
    )


def _may_have_lost_leader(parts: Parts, context: RequestContext) -> bool:
    """A client that sends Metadata on a connection that it has had for a while may have lost a
    leader."""
    return (
        len(parts.metadata.image.brokers) > 1
        and context.received - context.connection.opened > _NEW_CONNECTION_S
    )


def _may_describe(context: RequestContext, name: str, *, is_filter: bool = True) -> bool:
    guard = context.guard
    return guard is None or guard.allows(
        AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_filter=is_filter
    )


def _may_create(context: RequestContext, name: str, *, is_filter: bool = True) -> bool:
    guard = context.guard
    return (
        guard is None
        or guard.allows_cluster(AclOperation.CREATE, is_filter=True)
        or guard.allows(AclOperation.CREATE, ResourceType.TOPIC, name, is_filter=is_filter)
    )


def _names(
    parts: Parts, topics: Sequence[MetadataRequest.Topic], context: RequestContext
) -> list[str]:
    topic_names = parts.metadata.image.topic_names
    names = [topic.name or topic_names.get(topic.topic_id, "") for topic in topics]
    if context.guard is None:
        return names
    return [name for name in names if _may_describe(context, name)]


def _creates(parts: Parts, request: MetadataRequest) -> bool:
    return request.allow_auto_topic_creation and parts.config[AUTO_CREATE_TOPICS_ENABLE]


def _to_create(
    parts: Parts,
    request: MetadataRequest,
    topics: Sequence[MetadataRequest.Topic],
    context: RequestContext,
) -> list[str]:
    if not _creates(parts, request):
        return []
    names = dict.fromkeys(
        topic.name for topic in topics if topic.name is not None and topic.topic_id == NO_UUID
    )
    return [
        name
        for name in names
        if name not in parts.metadata.image.topics
        and absence(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and _may_describe(context, name)
        and _may_create(context, name)
    ]


async def _respond_later(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    """Create missing topics, and respond when all leaders are connected."""
    errors: CreationErrors = {}
    if not _is_invalid(request, context):
        missing: dict[str, None] = {}
        names: list[str] = []
        for topics in _slices_of(request.topics or ()):
            missing.update(dict.fromkeys(_to_create(parts, request, topics, context)))
            names += _names(parts, topics, context)
            await asyncio.sleep(0)
        if missing:
            errors = await _create(parts, list(missing), context)
        else:
            for _ in range(_DISCONNECT_TURNS):
                await asyncio.sleep(0)
            await parts.metadata.wait_leaders(names)
    build = partial(_build, parts, request, context, errors)
    return await parts.encoded_topics.build_later(build)


def _slices_of(
    topics: Sequence[MetadataRequest.Topic],
) -> Iterator[Sequence[MetadataRequest.Topic]]:
    for start in range(0, len(topics), METADATA_SLICE_TOPICS):
        yield topics[start : start + METADATA_SLICE_TOPICS]


async def _create(parts: Parts, missing: list[str], context: RequestContext) -> CreationErrors:
    try:
        errors = await parts.controllers.create_missing(missing, context)
    except KafkaError as error:
        return dict.fromkeys(missing, error)
    created = [quoted(name) for name, error in errors.items() if error is None]
    if created:
        log_change(context, created, "created automatically")
    return errors


# Building the response


def _build(
    parts: Parts, request: MetadataRequest, context: RequestContext, errors: CreationErrors
) -> Slices[MetadataResponse]:
    """Build the response in slices, from the metadata of the first one."""
    image, live = parts.metadata.image, frozenset(live_brokers(parts))
    brokers = tuple(
        MetadataResponse.Broker(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in parts.metadata.advertised(
            context.listener_name, context.local_host
        )
    )
    included = request.include_topic_authorized_operations

    def operations(name: str) -> int:
        return authorized_operations(context, ResourceType.TOPIC, name, included=included)

    # Without an authorizer all topics have the same.
    form = Form(context.version, operations(""))
    encoded, guard = parts.encoded_topics, context.guard
    each = operations if included and guard is not None else None
    encoded.renew(live)
    if _is_all(request, context):
        if guard is None or guard.is_super_user:
            topics = yield from encoded.all_topics(image.topics, form, live)
        else:
            describable = (
                topic if _may_describe(context, topic.name) else None
                for topic in image.topics.values()
            )
            topics = yield from encoded.some_topics(describable, form, live, each)
    elif _is_invalid(request, context):
        topics = yield from encoded.some_topics(map(_invalid, request.topics or ()), form, live)
    else:
        found = _found(image, request, context, operations, errors, _creates(parts, request))
        topics = yield from encoded.some_topics(found, form, live, each)
    return MetadataResponse(
        brokers=brokers,
        cluster_id=parts.cluster_id,
        controller_id=parts.node_id,
        topics=topics,  # type: ignore[arg-type]  # see may_be_encoded
        cluster_authorized_operations=cluster_operations(
            context, included=request.include_cluster_authorized_operations
        ),
    )


def _invalid(topic: MetadataRequest.Topic) -> Topic:
    return Topic(
        error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
    )


def _found(
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
    operations: Callable[[str], int],
    errors: CreationErrors,
    creates: bool,
) -> Iterator[TopicImage | Topic]:
    """Yield the requested topics, each once."""
    seen: set[tuple[str | None, UUID]] = set()
    for topic in request.topics or ():
        name = topic.name if topic.topic_id == NO_UUID else None
        if (name, topic.topic_id) not in seen:
            seen.add((name, topic.topic_id))
            if name is None:
                yield _topic_with_id(image, topic.topic_id, context)
            elif not _may_describe(context, name, is_filter=False) or (
                creates
                and name not in image.topics
                and not _may_create(context, name, is_filter=False)
            ):
                yield Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            else:
                yield _topic_with_name(image, name, operations, errors)


def _topic_with_id(
    image: MetadataImage, topic_id: UUID, context: RequestContext
) -> TopicImage | Topic:
    topic = image.topics.get(image.topic_names.get(topic_id, ""))
    if topic is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not _may_describe(context, topic.name, is_filter=False):
        # As in Kafka the client learns that the id exists, but not the name.
        return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return topic


def _topic_with_name(
    image: MetadataImage, name: str, operations: Callable[[str], int], errors: CreationErrors
) -> TopicImage | Topic:
    topic = image.topics.get(name)
    if topic is not None:
        return topic
    error = errors.get(name)
    code = absence(name) if error is None else error.code
    if code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        # Another request creates the topic and is not committed yet, or the client is beyond its
        # quota controller_mutation_rate. It may retry; consumers do not know the second error.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return Topic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations(name),
    )
