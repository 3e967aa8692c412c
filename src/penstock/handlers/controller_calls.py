"""Requests that the active controller executes.

Clients send theirs to any node, which forwards them to the active controller (KIP-590). The module
of such an API has `decide(controller, request)`, which runs on the active controller, and
`refused(request, error)`, which makes the response if the request fails as a whole. A module whose
decision depends on the client has `decide_for(controller, request, requester=...)` instead.
`envelope` calls them for forwarded requests. Brokers send their own requests to the active
controller itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext

if TYPE_CHECKING:
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController

Q = TypeVar("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

logger = logging.getLogger(__name__)


class BrokerRequest(Protocol):
    @property
    def broker_id(self) -> int: ...


class ErrorResponse(Protocol[R_co]):
    """The class of a response with a top-level error code."""

    def __call__(self, *, error_code: int) -> R_co: ...


async def ask_controller(
    controllers: Controllers,
    request: Q,
    context: RequestContext,
    decide: Callable[[NodeController, Q], Awaitable[R]],
    refused: Callable[[Q, KafkaError], R],
) -> R:
    """Return the active controller's response to a client's request."""
    try:
        return await controllers.ask(request, decide, version=context.version, requester=context)
    except KafkaError as error:
        return refused(request, error)


async def answer_broker(
    request: BrokerRequest, response: Awaitable[R], failed: ErrorResponse[R]
) -> R:
    """Return this controller's response to a broker's request, or its error."""
    try:
        return await response
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            name = type(request).__name__.removesuffix("Request")
            logger.info("%s of broker %d refused: %s", name, request.broker_id, error.message)
        return failed(error_code=error.code)


def refused_resources(
    response: Callable[..., Any], resources: tuple[Any, ...], error: KafkaError
) -> tuple[Any, ...]:
    """Return an error response for each config resource."""
    return tuple(
        response(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    )
