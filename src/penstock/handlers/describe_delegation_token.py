"""DescribeDelegationToken: lists delegation tokens with their secrets (KIP-48).

Behaviour
  The response has this node's metadata. A client gets the tokens that it owns, may renew or has
  created for another owner. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on its owner
  (KIP-373). Named owners restrict the list to tokens that one of them owns, may renew or has
  created; an empty list of owners finds nothing.
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED as for CreateDelegationToken,
  DELEGATION_TOKEN_AUTH_DISABLED without delegation.token.secret.key, INVALID_REQUEST for more than
  10,000 owners.

Version notes
  v2 is flexible, v3 adds the requester.

Not implemented
  -
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.config.delegation_token_settings import secret_key
from penstock.errors import ErrorCode
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.delegation_token_requests import NOT_ALLOWED, REQUESTER_SINCE, is_allowed
from penstock.limits import DESCRIBED_TOKENS_A_TURN, MAX_DESCRIBED_TOKEN_OWNERS
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.schema import EncodedArray
from penstock.security.acls import AclOperation, ResourceType
from penstock.security.delegation_tokens import DelegationToken, token_hmac
from penstock.security.principals import KafkaPrincipal

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.metadata import MetadataView

Token = DescribeDelegationTokenResponse.Token


class Parts(Protocol):
    config: NodeConfig
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse | Exclusive[DescribeDelegationTokenResponse]:
    if not is_allowed(parts.config, context):
        return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
    key = secret_key(parts.config)
    if key is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if request.owners is None:
        return Exclusive(_describe(parts, None, key, context))
    if len(request.owners) > MAX_DESCRIBED_TOKEN_OWNERS:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.INVALID_REQUEST)
    owners = frozenset(
        KafkaPrincipal(owner.principal_type, owner.principal_name) for owner in request.owners
    )
    return Exclusive(_describe(parts, owners, key, context))


async def _describe(
    parts: Parts, owners: frozenset[KafkaPrincipal] | None, key: bytes, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """A cluster may have thousands of tokens: they are looked at and encoded in turns of the event
    loop."""
    encoded: list[bytes] = []
    for count, token in enumerate(parts.metadata.image.delegation_tokens.values(), 1):
        if (owners is None or _is_of(token, owners)) and _is_shown(token, context):
            described = _described(token, key, context.version)
            encoded.append(
                encode_struct(DescribeDelegationTokenResponse, described, context.version)
            )
        if count % DESCRIBED_TOKENS_A_TURN == 0:
            await asyncio.sleep(0)
    return DescribeDelegationTokenResponse(
        tokens=EncodedArray(len(encoded), b"".join(encoded)),  # type: ignore[arg-type]
    )


def _is_of(token: DelegationToken, owners: frozenset[KafkaPrincipal]) -> bool:
    return not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def _is_shown(token: DelegationToken, context: RequestContext) -> bool:
    guard = context.guard
    return (
        guard is None
        or token.is_shown_to(context.principal)
        or guard.allows(
            AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_filter=True
        )
        or guard.allows(
            AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), is_filter=True
        )
    )


def _described(token: DelegationToken, key: bytes, version: int) -> Token:
    has_requester = version >= REQUESTER_SINCE
    return Token(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if has_requester else "",
        token_requester_principal_name=token.requester.name if has_requester else "",
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac(key, token.token_id),
        renewers=tuple(
            Token.Renewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ),
    )
