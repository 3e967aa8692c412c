"""DescribeDelegationToken: lists delegation tokens."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, int16, int32, int64, message, string, struct


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    @struct
    class Owner:
        principal_type: str = string("1+")
        principal_name: str = string("1+")

    owners: tuple[Owner, ...] | None = array(Owner, "1+", nullable="1+")


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    @struct
    class Token:
        @struct
        class Renewer:
            principal_type: str = string("1+")
            principal_name: str = string("1+")

        principal_type: str = string("1+")
        principal_name: str = string("1+")
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64("1+")
        expiry_timestamp: int = int64("1+")
        max_timestamp: int = int64("1+")
        token_id: str = string("1+")
        hmac: bytes = blob("1+")
        renewers: tuple[Renewer, ...] = array(Renewer, "1+")

    error_code: int = int16("1+")
    tokens: tuple[Token, ...] = array(Token, "1+", may_be_encoded=True)
    throttle_time_ms: int = int32("1+")
