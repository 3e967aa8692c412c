"""CreateDelegationToken: creates a delegation token, with which its bearer authenticates as the
owner."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, int16, int32, int64, message, string, struct


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    @struct
    class Renewer:
        principal_type: str = string("1+")
        principal_name: str = string("1+")

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: tuple[Renewer, ...] = array(Renewer, "1+")
    max_lifetime_ms: int = int64("1+")


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = int16("1+")
    principal_type: str = string("1+")
    principal_name: str = string("1+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("1+")
    expiry_timestamp_ms: int = int64("1+")
    max_timestamp_ms: int = int64("1+")
    token_id: str = string("1+")
    hmac: bytes = blob("1+")
    throttle_time_ms: int = int32("1+")
