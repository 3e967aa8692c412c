"""ExpireDelegationToken: lets a delegation token expire earlier, or removes it (KIP-48).

Behaviour
  The active controller decides. The owner and the renewers of a token may expire it. A negative
  period removes the token at once. Connections that have logged in with it stay open until the end
  of their sessions, as in Kafka.
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED as for CreateDelegationToken.
  DELEGATION_TOKEN_AUTH_DISABLED without delegation.token.secret.key, DELEGATION_TOKEN_NOT_FOUND,
  DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH for another principal.

Version notes
  v2 is flexible.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.controller.delegation_tokens import expire_delegation_token
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.delegation_token_requests import (
    Parts,
    TokenRequester,
    change_token,
    decide_change,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


def handle(
    parts: Parts, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse | Awaitable[ExpireDelegationTokenResponse]:
    return change_token(parts, request, context, decide_for, ExpireDelegationTokenResponse)


def decide_for(
    controller: NodeController, request: ExpireDelegationTokenRequest, *, requester: TokenRequester
) -> Awaitable[ExpireDelegationTokenResponse]:
    return decide_change(
        controller, expire_delegation_token, request, requester, ExpireDelegationTokenResponse
    )


def refused(
    _request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code)
