"""RenewDelegationToken: prolongs the life of a delegation token."""

from __future__ import annotations

from penstock.protocol.schema import blob, int16, int32, int64, message


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = blob("1+")
    renew_period_ms: int = int64("1+")


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = int16("1+")
    expiry_timestamp_ms: int = int64("1+")
    throttle_time_ms: int = int32("1+")
