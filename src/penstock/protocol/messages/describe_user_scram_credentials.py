"""DescribeUserScramCredentials: lists the SCRAM credentials of users, without secrets."""

from __future__ import annotations

from penstock.protocol.schema import array, int8, int16, int32, message, string, struct


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    @struct
    class User:
        name: str = string("0+")

    users: tuple[User, ...] | None = array(User, "0+", nullable="0+")


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    @struct
    class Result:
        @struct
        class CredentialInfo:
            mechanism: int = int8("0+")
            iterations: int = int32("0+")

        user: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        credential_infos: tuple[CredentialInfo, ...] = array(CredentialInfo, "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: tuple[Result, ...] = array(Result, "0+", may_be_encoded=True)
