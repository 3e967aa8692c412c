"""What CreateAcls and DeleteAcls share: the active controller decides, and this node responds when
its own authorizer has applied the change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView

Q = TypeVar("Q")
R = TypeVar("R")


class Parts(Protocol):
    metadata: MetadataView
    controllers: Controllers


async def change_acls(
    parts: Parts,
    request: Q,
    context: RequestContext,
    decide: Callable[[NodeController, Q], Awaitable[R]],
    refused: Callable[[Q, KafkaError], R],
    is_applied: Callable[[Q, R], Callable[[MetadataImage], bool]],
) -> R:
    """Return the active controller's response. `is_applied` returns a function that tells if an
    image has the change of a response."""
    response = await ask_controller(parts.controllers, request, context, decide, refused)
    await parts.metadata.wait_until(is_applied(request, response))
    return response
