"""What the checks of all APIs share: the call that they guard, turns, and errors in Kafka's words.

A check that looks at many names is a generator, which pauses when its turn of the event loop is
over (`Guard.pace`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.authorization.guard import Guard, Pace
from penstock.handlers.context import Exclusive
from penstock.handlers.turns import Turns, run
from penstock.ids import NO_UUID
from penstock.metadata.image import MetadataImage
from penstock.protocol.apis import response_class
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, ResourceType

R = TypeVar("R")
T = TypeVar("T")


class Call(NamedTuple):
    """`proceed` runs the handler with the whole request or with a part of it. `image` is the
    newest metadata of this node, whose parts are `parts`."""

    api_key: int
    image: MetadataImage
    proceed: Callable[[Any], Any]
    parts: Any = None


FAILED = {
    ResourceType.TOPIC: KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    ),
    ResourceType.GROUP: KafkaError(
        ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    ),
    ResourceType.CLUSTER: KafkaError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    ),
    ResourceType.TRANSACTIONAL_ID: KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
TOPIC_DENIED = FAILED[ResourceType.TOPIC].code
GROUP_DENIED = FAILED[ResourceType.GROUP].code
CLUSTER_DENIED = FAILED[ResourceType.CLUSTER].code
TRANSACTIONAL_ID_DENIED = FAILED[ResourceType.TRANSACTIONAL_ID].code


# Turns


def then(response: R | Awaitable[R], convert: Callable[[R], R | Turns[R]]) -> Any:
    """Convert a response, now or when it is there. An exclusive response stays exclusive."""
    if isinstance(response, Exclusive):
        return Exclusive(_then(response, convert))
    if inspect.isawaitable(response):
        return _then(response, convert)
    return run(convert(response))


async def _then(response: Awaitable[R], convert: Callable[[R], R | Turns[R]]) -> Any:
    converted = run(convert(await response))
    return await converted if inspect.isawaitable(converted) else converted


def each(pace: Pace, items: Iterable[T], make: Callable[[T], R]) -> Turns[tuple[R, ...]]:
    """Return what `make` makes of each item."""
    made = []
    for item in items:
        made.append(make(item))
        if pace.is_over():
            yield
    return tuple(made)


def kept(pace: Pace, items: Iterable[T], may: Callable[[T], bool]) -> Turns[tuple[T, ...]]:
    """Return the items that a filter lets through."""
    found = []
    for item in items:
        if may(item):
            found.append(item)
        if pace.is_over():
            yield
    return tuple(found)


def split(
    guard: Guard,
    operation: AclOperation,
    resource_type: ResourceType,
    items: Iterable[T],
    name_of: Callable[[T], str | None],
) -> Turns[tuple[tuple[T, ...], tuple[T, ...]]]:
    """Return the items that the client may use, and the others. An item without a name, such as a
    topic id that does not exist, is left to the handler."""
    allowed: list[T] = []
    denied: list[T] = []
    pace = guard.pace
    for item in items:
        name = name_of(item)
        if name is None or guard.allows(operation, resource_type, name):
            allowed.append(item)
        else:
            denied.append(item)
        if pace.is_over():
            yield
    return tuple(allowed), tuple(denied)


# Errors of the parts of a request


def with_errors(
    call: Call,
    request: Any,
    allowed: dict[str, tuple[Any, ...]],
    results: str,
    errors: tuple[Any, ...],
) -> Any:
    """Run the handler for the allowed parts of a request, if there are any, and add the errors of
    the others to the results. A response with an error of its own has no results."""
    if not any(allowed.values()):
        response: Any = response_class(call.api_key)
        return response(**{results: errors})

    def add(response: Any) -> Any:
        if getattr(response, "error_code", 0):
            return response
        return changed(response, **{results: getattr(response, results) + errors})

    return then(call.proceed(changed(request, **allowed)), add)


def by_topic(
    guard: Guard,
    operation: AclOperation,
    request: Any,
    call: Call,
    error_of: Callable[[Any], Turns[Any]],
) -> Turns[Any]:
    """Run the handler for the topics of a request that are allowed, and add the error of each
    other topic."""
    allowed, denied = yield from split(
        guard, operation, ResourceType.TOPIC, request.topics, _topic_name
    )
    if not denied:
        return call.proceed(request)
    errors = yield from nested(guard.pace, denied, error_of)
    return with_errors(call, request, {"topics": allowed}, "topics", errors)


def topic_error(
    guard: Guard, topic: Any, response: Any, code: ErrorCode = TOPIC_DENIED, **of_partition: Any
) -> Turns[Any]:
    """Return the error of each partition of a topic, as most responses have it."""
    make = response.Topic.Partition
    partitions = yield from each(
        guard.pace,
        topic.partitions,
        lambda partition: make(
            partition_index=partition.partition_index, error_code=code, **of_partition
        ),
    )
    return response.Topic(name=topic.name, partitions=partitions)


def _topic_name(topic: Any) -> str:
    name: str = topic.topic if hasattr(topic, "topic") else topic.name
    return name


def nested(pace: Pace, items: Iterable[T], make: Callable[[T], Turns[R]]) -> Turns[tuple[R, ...]]:
    """As `each`, for items that take turns themselves."""
    made = []
    for item in items:
        made.append((yield from make(item)))
        if pace.is_over():
            yield
    return tuple(made)


def topic_name(image: MetadataImage, name: str | None, topic_id: UUID) -> str | None:
    """Return the name of a topic that a request names, or gives the id of."""
    if topic_id == NO_UUID:
        return name
    return image.topic_names.get(topic_id)
