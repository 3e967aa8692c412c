"""AlterUserScramCredentials: sets and removes SCRAM credentials of users."""

from __future__ import annotations

from penstock.protocol.schema import array, blob, int8, int16, int32, message, string, struct


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    @struct
    class Deletion:
        name: str = string("0+")
        mechanism: int = int8("0+")

    @struct
    class Upsertion:
        name: str = string("0+")
        mechanism: int = int8("0+")
        iterations: int = int32("0+")
        salt: bytes = blob("0+")
        salted_password: bytes = blob("0+")

    deletions: tuple[Deletion, ...] = array(Deletion, "0+")
    upsertions: tuple[Upsertion, ...] = array(Upsertion, "0+")


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    @struct
    class Result:
        user: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    throttle_time_ms: int = int32("0+")
    results: tuple[Result, ...] = array(Result, "0+")
