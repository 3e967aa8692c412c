"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, and the removal of expired
tokens (Kafka's DelegationTokenControlManager). PURE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from penstock.config.delegation_token_settings import (
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
)
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import uuid_text
from penstock.limits import (
    EXPIRED_TOKENS_A_TURN,
    MAX_DELEGATION_TOKENS,
    MAX_DELEGATION_TOKENS_PER_OWNER,
    MAX_TOKEN_PRINCIPAL_CHARACTERS,
    MAX_TOKEN_RENEWERS,
)
from penstock.metadata.delegation_tokens_delta import token_record
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.metadata_security import RemoveDelegationTokenRecord
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.security.delegation_tokens import DelegationToken, TokensByHmac, token_hmac
from penstock.security.principals import USER, KafkaPrincipal

_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TokenContext:
    """What a decision on tokens reads besides the image, the request and the settings. `by_hmac` is
    None if the node has no delegation.token.secret.key."""

    requester: KafkaPrincipal
    now_ms: int
    by_hmac: TokensByHmac | None


def create_delegation_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    context: ControllerContext,
    tokens: TokenContext,
) -> ControllerResult[CreateDelegationTokenResponse]:
    """Create a token of the requester, or of the owner that the request names."""
    by_hmac = _enabled(tokens)
    owner, requester, now_ms = (
        token_owner(request, tokens.requester),
        tokens.requester,
        tokens.now_ms,
    )
    renewers = tuple(
        KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers
    )
    check_principals(owner, renewers)
    _check_room(image, owner)
    longest_ms = context.config[DELEGATION_TOKEN_MAX_LIFETIME_MS]
    if request.max_lifetime_ms > 0:
        longest_ms = min(longest_ms, request.max_lifetime_ms)
    max_ms = _sum(now_ms, longest_ms)
    expires_ms = min(max_ms, _sum(now_ms, context.config[DELEGATION_TOKEN_EXPIRY_TIME_MS]))
    while (token_id := uuid_text(context.new_uuid())) in image.delegation_tokens:
        pass
    token = DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=now_ms,
        expiry_timestamp_ms=expires_ms,
        max_timestamp_ms=max_ms,
        token_id=token_id,
        hmac=token_hmac(by_hmac.secret_key, token_id),
    )
    return ControllerResult((token_record(token),), response)


def token_owner(request: CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)


def check_principals(owner: KafkaPrincipal, renewers: tuple[KafkaPrincipal, ...]) -> None:
    """Raise KafkaError unless all principals are users. Kafka checks the renewers only. A client
    with a token is a user, so that a token of an owner of another type would be that of a user."""
    if any(principal.type != USER for principal in (owner, *renewers)):
        raise KafkaError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, f"owner and renewers of a token must be {USER}:name"
        )
    if len(renewers) > MAX_TOKEN_RENEWERS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"a token may have {MAX_TOKEN_RENEWERS} renewers, not {len(renewers)}",
        )
    if (
        max(len(principal.name) for principal in (owner, *renewers))
        > MAX_TOKEN_PRINCIPAL_CHARACTERS
    ):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"a principal may have {MAX_TOKEN_PRINCIPAL_CHARACTERS} characters",
        )


def _check_room(image: MetadataImage, owner: KafkaPrincipal) -> None:
    if len(image.delegation_tokens) >= MAX_DELEGATION_TOKENS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster has {MAX_DELEGATION_TOKENS} delegation tokens, which is the limit",
        )
    owned = sum(token.owner == owner for token in image.delegation_tokens.values())
    if owned >= MAX_DELEGATION_TOKENS_PER_OWNER:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{owner} has {MAX_DELEGATION_TOKENS_PER_OWNER} delegation tokens, which is the limit. "
            "Expire some",
        )


def renew_delegation_token(
    image: MetadataImage,
    request: RenewDelegationTokenRequest,
    context: ControllerContext,
    tokens: TokenContext,
) -> ControllerResult[RenewDelegationTokenResponse]:
    """Let a token expire later, but not after the end of its life."""
    token = _found(image, bytes(request.hmac), tokens)
    if token.is_expired(tokens.now_ms):
        raise _error(ErrorCode.DELEGATION_TOKEN_EXPIRED, token)
    _check_belongs(token, tokens.requester)
    period_ms = context.config[DELEGATION_TOKEN_EXPIRY_TIME_MS]
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expires_ms = min(token.max_ms, _sum(tokens.now_ms, period_ms))
    return ControllerResult(
        (token_record(replace(token, expires_ms=expires_ms)),),
        RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms),
    )


def expire_delegation_token(
    image: MetadataImage,
    request: ExpireDelegationTokenRequest,
    _context: ControllerContext,
    tokens: TokenContext,
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """Let a token expire after a period, or remove it if the period is negative."""
    token = _found(image, bytes(request.hmac), tokens)
    _check_belongs(token, tokens.requester)
    if request.expiry_time_period_ms < 0:
        return ControllerResult(
            (RemoveDelegationTokenRecord(token_id=token.token_id),),
            ExpireDelegationTokenResponse(expiry_timestamp_ms=tokens.now_ms),
        )
    if token.is_expired(tokens.now_ms):
        raise _error(ErrorCode.DELEGATION_TOKEN_EXPIRED, token)
    expires_ms = min(token.max_ms, _sum(tokens.now_ms, request.expiry_time_period_ms))
    return ControllerResult(
        (token_record(replace(token, expires_ms=expires_ms)),),
        ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms),
    )


def remove_expired_tokens(image: MetadataImage, now_ms: int) -> ControllerResult[tuple[str, ...]]:
    """Remove some expired tokens. The response has their ids; call again until it is empty."""
    expired = (
        token_id for token_id, token in image.delegation_tokens.items() if token.is_expired(now_ms)
    )
    removed = tuple(islice(expired, EXPIRED_TOKENS_A_TURN))
    records = tuple(RemoveDelegationTokenRecord(token_id=token_id) for token_id in removed)
    return ControllerResult(records, removed)


def _enabled(tokens: TokenContext) -> TokensByHmac:
    if tokens.by_hmac is None:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "the active controller has no delegation.token.secret.key. Set the same one on all "
            "nodes",
        )
    return tokens.by_hmac


def _found(image: MetadataImage, secret: bytes, tokens: TokenContext) -> DelegationToken:
    token = _enabled(tokens).find(image.delegation_tokens, secret)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC")
    return token


def _check_belongs(token: DelegationToken, requester: KafkaPrincipal) -> None:
    if not token.belongs_to(requester):
        raise _error(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, token)


def _error(code: ErrorCode, token: DelegationToken) -> KafkaError:
    return KafkaError(code, f"delegation token {token.token_id} of {token.owner}: {code.name}")


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, _MAX_INT64)
