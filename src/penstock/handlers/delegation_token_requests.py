"""What the four APIs of delegation tokens share (KIP-48): who may use them.

A client on a PLAINTEXT listener, one without a certificate on an SSL listener, and one that has a
token itself may not: a token must not outlive the credential of its owner. A forwarded request has
passed the listener of a broker; the controller looks at the token of its client only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.config.listeners import SecurityProtocol, security_protocols
from penstock.errors import ErrorCode
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.security.acls import AclOperation, ResourceType
from penstock.security.principals import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.controller.decision import ControllerContext, ControllerResult
    from penstock.controller.delegation_tokens import TokenContext
    from penstock.handlers.authorization.guard import Guard
    from penstock.metadata.image import MetadataImage
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController

Q = TypeVar("Q")
R = TypeVar("R")
Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
# Of a response that has no token.
NO_TIMESTAMP = -1
# The first version of responses with the requester of a token.
REQUESTER_SINCE = 3


class Parts(Protocol):
    config: NodeConfig
    controllers: Controllers


class TokenRequester(NamedTuple):
    """The client that sent a request of a version, to this node or to the broker that forwarded it.
    `guard` is None without an authorizer."""

    principal: KafkaPrincipal
    token_authenticated: bool
    version: int
    guard: Guard | None

    @staticmethod
    def of(context: RequestContext) -> TokenRequester:
        return TokenRequester(
            context.principal, context.token_authenticated, context.version, context.guard
        )

    def creation_refusal(self, owner: KafkaPrincipal) -> ErrorCode | None:
        """Return the error if this client may not create a token of an owner; None if it may."""
        if self.token_authenticated:
            return NOT_ALLOWED
        if (
            owner != self.principal
            and self.guard is not None
            and not self.guard.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner))
        ):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        return None


def is_allowed(config: NodeConfig, context: RequestContext) -> bool:
    """Return True if the connection may be used for requests about tokens."""
    protocol = security_protocols(config)[context.listener_name]
    return not (
        context.token_authenticated
        or protocol is SecurityProtocol.PLAINTEXT
        or (protocol is SecurityProtocol.SSL and context.principal == ANONYMOUS)
    )


class DecideFor(Protocol[Q_contra, R_co]):
    """Decides on a client's request on the active controller."""

    def __call__(
        self, controller: NodeController, request: Q_contra, /, *, requester: TokenRequester
    ) -> Awaitable[R_co]: ...


class ChangeResponse(Protocol[R_co]):
    """The class of the response to a request that changes a token."""

    def __call__(self, *, error_code: int, expiry_timestamp_ms: int = 0) -> R_co: ...


def change_token(
    parts: Parts,
    request: Q,
    context: RequestContext,
    decide_for: DecideFor[Q, R],
    response: ChangeResponse[R],
) -> R | Awaitable[R]:
    """Return the active controller's response to a request that renews or expires a token."""
    if not is_allowed(parts.config, context):
        return response(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)
    return ask_controller(
        parts.controllers,
        request,
        context,
        partial(decide_for, requester=TokenRequester.of(context)),
        lambda _request, error: response(error_code=error.code),
    )


async def decide_change(
    controller: NodeController,
    decide: Callable[[MetadataImage, Q, ControllerContext, TokenContext], ControllerResult[R]],
    request: Q,
    requester: TokenRequester,
    response: ChangeResponse[R],
) -> R:
    """Decide on such a request on the active controller."""
    if requester.token_authenticated:
        return response(error_code=NOT_ALLOWED, expiry_timestamp_ms=NO_TIMESTAMP)
    return await controller.tokens.decide(decide, request, requester.principal)
