"""CreateDelegationToken: creates a delegation token, with which its bearer logs in as the owner
(KIP-48).

Behaviour
  The active controller decides. This node sends the response when its own metadata has the token,
  so that the client can log in here at once.
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a PLAINTEXT listener, for a TLS client without a
  certificate, and for a client that has logged in with a token.
  DELEGATION_TOKEN_AUTH_DISABLED without delegation.token.secret.key. INVALID_PRINCIPAL_TYPE for
  an owner or a renewer that is not a user. POLICY_VIOLATION if there are too many tokens or
  renewers. A token of another owner needs CREATE_TOKENS on that user (KIP-373).

Version notes
  v2 is flexible, v3 adds the owner and the requester.

Not implemented
  -
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.controller.delegation_tokens import (
    check_principals,
    create_delegation_token,
    token_owner,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers.context import RequestContext
from penstock.handlers.controller_calls import ask_controller
from penstock.handlers.delegation_token_requests import (
    NO_TIMESTAMP,
    NOT_ALLOWED,
    REQUESTER_SINCE,
    TokenRequester,
    is_allowed,
)
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.schema import changed
from penstock.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.broker.controllers import Controllers
    from penstock.node.controller.controller import NodeController
    from penstock.node.metadata import MetadataView


class Parts(Protocol):
    config: NodeConfig
    metadata: MetadataView
    controllers: Controllers


def handle(
    parts: Parts, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse | Awaitable[CreateDelegationTokenResponse]:
    requester = TokenRequester.of(context)
    owner = token_owner(request, requester.principal)
    if not is_allowed(parts.config, context):
        return _refused(NOT_ALLOWED, owner, requester, NO_TIMESTAMP)
    code = requester.creation_refusal(owner)
    if code is not None:
        return _refused(code, owner, requester, NO_TIMESTAMP)
    renewers = (
        KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers
    )
    try:
        check_principals(owner, tuple(renewers))
    except KafkaError as error:
        return _refused(error.code, owner, requester, NO_TIMESTAMP)
    return _create(parts, request, context, requester)


async def _create(
    parts: Parts,
    request: CreateDelegationTokenRequest,
    context: RequestContext,
    requester: TokenRequester,
) -> CreateDelegationTokenResponse:
    owner = token_owner(request, requester.principal)
    response = await ask_controller(
        parts.controllers,
        request,
        context,
        partial(decide_for, requester=requester),
        lambda _request, error: _refused(error.code, owner, requester),
    )
    if not response.error_code:
        await parts.metadata.wait_until(lambda image: response.token_id in image.delegation_tokens)
    return response


async def decide_for(
    controller: NodeController, request: CreateDelegationTokenRequest, *, requester: TokenRequester
) -> CreateDelegationTokenResponse:
    owner = token_owner(request, requester.principal)
    code = requester.creation_refusal(owner)
    if code is not None:
        return _refused(code, owner, requester, NO_TIMESTAMP)
    try:
        response = await controller.tokens.decide(
            create_delegation_token, request, requester.principal
        )
        return _of_version(response, requester.version)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(error.code, owner, requester)


def refused(
    _request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    """`decide_for` answers what it refuses itself, with the principals."""
    return CreateDelegationTokenResponse(error_code=error.code)


def _refused(
    code: ErrorCode, owner: KafkaPrincipal, requester: TokenRequester, timestamp: int = 0
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.principal.type,
        token_requester_principal_name=requester.principal.name,
        issue_timestamp_ms=timestamp,
        expiry_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
    )
    return _of_version(response, requester.version)


def _of_version(
    response: CreateDelegationTokenResponse, version: int
) -> CreateDelegationTokenResponse:
    if version >= REQUESTER_SINCE:
        return response
    return changed(response, token_requester_principal_type="", token_requester_principal_name="")
