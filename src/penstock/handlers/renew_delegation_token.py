"""RenewDelegationToken: lets a delegation token expire later (KIP-48).

Behaviour
  The active controller decides. The owner and the renewers of a token may renew it, up to its
  maximum lifetime. A period that is not positive, or longer than delegation.token.expiry.time.ms,
  is that setting.
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

from penstock.controller.delegation_tokens import renew_delegation_token
from penstock.errors import KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.delegation_token_requests import (
    Parts,
    TokenRequester,
    change_token,
    decide_change,
)
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from penstock.node.controller.controller import NodeController


def handle(
    parts: Parts, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse | Awaitable[RenewDelegationTokenResponse]:
    return change_token(parts, request, context, decide_for, RenewDelegationTokenResponse)


def decide_for(
    controller: NodeController, request: RenewDelegationTokenRequest, *, requester: TokenRequester
) -> Awaitable[RenewDelegationTokenResponse]:
    return decide_change(
        controller, renew_delegation_token, request, requester, RenewDelegationTokenResponse
    )


def refused(
    _request: RenewDelegationTokenRequest, error: KafkaError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code)
