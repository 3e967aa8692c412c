"""Delegation tokens: create, renew, expire and describe them (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.errors import ErrorCode
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.security.delegation_tokens import DelegationToken, token_password
from penstock.security.principals import KafkaPrincipal

# Kafka's messages: the responses have none.
_REASONS: dict[int, str] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "Delegation Token is not found on server.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "Specified Principal is not valid Owner/Renewer.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
        "delegation token authenticated channels."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "Delegation Token is expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "Supplied principalType is not supported.",
    ErrorCode.POLICY_VIOLATION: "The token violates a limit: too many tokens, renewers or "
    "characters.",
}


@dataclass(frozen=True, slots=True)
class TokenWithSecret:
    """A token and its HMAC, with which everybody can log in as its owner."""

    token: DelegationToken
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The password of the token in SCRAM; the user name is its id."""
        return token_password(self.hmac)


async def create_delegation_token(
    cluster: Cluster,
    renewers: Sequence[KafkaPrincipal],
    max_lifetime_ms: int,
    owner: KafkaPrincipal | None,
) -> TokenWithSecret:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=tuple(
            CreateDelegationTokenRequest.Renewer(
                principal_type=renewer.type, principal_name=renewer.name
            )
            for renewer in renewers
        ),
        max_lifetime_ms=max_lifetime_ms,
    )
    response = await cluster.call(request, CreateDelegationTokenResponse)
    _check(response.error_code)
    token = DelegationToken(
        response.token_id,
        KafkaPrincipal(response.principal_type, response.principal_name),
        KafkaPrincipal(
            response.token_requester_principal_type, response.token_requester_principal_name
        ),
        tuple(renewers),
        response.issue_timestamp_ms,
        response.max_timestamp_ms,
        response.expiry_timestamp_ms,
    )
    return TokenWithSecret(token, bytes(response.hmac))


async def renew_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return await _change(cluster, request, RenewDelegationTokenResponse)


async def expire_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return await _change(cluster, request, ExpireDelegationTokenResponse)


async def _change(cluster: Cluster, request: object, response_class: type[Any]) -> int:
    async def attempt() -> int:
        response = await cluster.call(request, response_class)
        _check(response.error_code)
        return int(response.expiry_timestamp_ms)

    return await cluster.retry(attempt)


async def describe_delegation_tokens(
    cluster: Cluster, owners: Iterable[KafkaPrincipal] | None
) -> list[TokenWithSecret]:
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else tuple(
            DescribeDelegationTokenRequest.Owner(
                principal_type=owner.type, principal_name=owner.name
            )
            for owner in owners
        )
    )

    async def attempt() -> list[TokenWithSecret]:
        response = await cluster.call(request, DescribeDelegationTokenResponse)
        _check(response.error_code)
        return [_described(token) for token in response.tokens]

    return await cluster.retry(attempt)


def _described(token: DescribeDelegationTokenResponse.Token) -> TokenWithSecret:
    described = DelegationToken(
        token.token_id,
        KafkaPrincipal(token.principal_type, token.principal_name),
        KafkaPrincipal(token.token_requester_principal_type, token.token_requester_principal_name),
        tuple(
            KafkaPrincipal(renewer.principal_type, renewer.principal_name)
            for renewer in token.renewers
        ),
        token.issue_timestamp,
        token.max_timestamp,
        token.expiry_timestamp,
    )
    return TokenWithSecret(described, bytes(token.hmac))


def _check(code: int) -> None:
    check(code, _REASONS.get(code, "the request is refused"))
