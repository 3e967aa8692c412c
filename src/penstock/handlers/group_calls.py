"""What the APIs of groups have in common: who asks, and what is made of answers that may have to be
waited for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from penstock.coordinator.runtime.step import Caller
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.node.shards.group_topic import OFFSETS_TOPIC

if TYPE_CHECKING:
    from penstock.node.metadata import MetadataView
    from penstock.world import Clock

# Up to here the setting is not even looked up: nobody has it that low.
_SMALL = 64 * 1024

R = TypeVar("R")
S = TypeVar("S")


class Parts(Protocol):
    clock: Clock
    metadata: MetadataView


def caller_of(parts: Parts, context: RequestContext) -> Caller:
    """Kafka shows the address of a client as Java does, with a slash."""
    return Caller(
        context.client_id or "",
        "/" + context.peer.rpartition(":")[0],
        context.version,
        parts.clock.now_ms(),
    )


def check_size(parts: Parts, size: int) -> None:
    """What a group keeps of a request is in one record, which must be one that its topic takes: a
    larger one would cost the coordinator all that it knows, and it would have to be loaded again.
    KafkaError where it is too large."""
    if size > _SMALL and size > parts.metadata.topic_config(OFFSETS_TOPIC).max_message_bytes:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{size} bytes are more than a record of {OFFSETS_TOPIC} may have",
        )


def with_answer(answer: R | Awaitable[R], make: Callable[[R], S]) -> S | Awaitable[S]:
    """What is made of an answer, now or when it is there."""
    return _later(answer, make) if inspect.isawaitable(answer) else make(answer)


async def _later(answer: Awaitable[R], make: Callable[[R], S]) -> S:
    return make(await answer)


def all_of(answers: Iterable[R | Awaitable[R]]) -> list[R] | Awaitable[list[R]]:
    """In their order; now, where none of them must be waited for."""
    gathered = list(answers)
    return (
        _gather(gathered)
        if any(inspect.isawaitable(one) for one in gathered)
        else cast(list[R], gathered)
    )


async def _gather(answers: list[R | Awaitable[R]]) -> list[R]:
    waiting = [asyncio.ensure_future(one) for one in answers if inspect.isawaitable(one)]
    await asyncio.gather(*waiting)
    results = iter(waiting)
    return [next(results).result() if inspect.isawaitable(one) else one for one in answers]
