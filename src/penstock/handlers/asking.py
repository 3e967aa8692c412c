"""What only the active controller can decide: asked of it wherever it is, by any node (KIP-590).

A module whose API is the controller's has `decide(controller, request)`, which runs on the active
one, and `refused(request, error)`, the response that tells a client why nothing was decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController

Q = TypeVar("Q")
R = TypeVar("R")


async def ask_controller(
    controllers: Controllers,
    request: Q,
    context: RequestContext,
    decide: Callable[[NodeController, Q], Awaitable[R]],
    refused: Callable[[Q, KafkaError], R],
) -> R:
    try:
        return await controllers.ask(
            request, decide, version=context.version, client_id=context.client_id, peer=context.peer
        )
    except KafkaError as error:
        return refused(request, error)
