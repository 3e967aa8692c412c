"""DescribeUserScramCredentials: the mechanisms and iterations of users, without secrets (KIP-554).

Behaviour
  All users if none are named. RESOURCE_NOT_FOUND for a user without a credential,
  DUPLICATE_RESOURCE for one that is named twice. Many users are described in turns of the event
  loop, from the metadata of the first one.

Version notes
  One version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import ErrorCode
from penstock.handlers.context import Exclusive, RequestContext
from penstock.handlers.turns import Turns, run
from penstock.limits import DESCRIBED_SCRAM_USERS_A_TURN
from penstock.protocol.codec import encode_struct
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.protocol.schema import EncodedArray
from penstock.security.sasl.scram_credential import ScramMechanism

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.node.metadata import MetadataView

Result = DescribeUserScramCredentialsResponse.Result
CredentialInfo = Result.CredentialInfo
_VERSION = 0


class Parts(Protocol):
    metadata: MetadataView


def handle(
    parts: Parts, request: DescribeUserScramCredentialsRequest, _context: RequestContext
) -> DescribeUserScramCredentialsResponse | Exclusive[DescribeUserScramCredentialsResponse]:
    response: (
        DescribeUserScramCredentialsResponse | Exclusive[DescribeUserScramCredentialsResponse]
    ) = run(_describe(parts.metadata.image, request))
    return response


def _describe(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> Turns[DescribeUserScramCredentialsResponse]:
    # A name that is given twice is in `repeated` too.
    names: dict[str, None] = {}
    repeated: set[str] = set()
    given = (
        (user.name for user in request.users)
        if request.users
        else (name for _mechanism, name in image.scram_credentials)
    )
    for count, name in enumerate(given, 1):
        if name in names:
            repeated.add(name)
        names[name] = None
        if count % DESCRIBED_SCRAM_USERS_A_TURN == 0:
            yield
    if not request.users:
        # A user may have a credential of each mechanism.
        repeated = set()
    results = (_result(image, name, is_repeated=name in repeated) for name in names)
    if len(names) <= DESCRIBED_SCRAM_USERS_A_TURN:
        return DescribeUserScramCredentialsResponse(results=tuple(results))
    encoded: list[bytes] = []
    for count, result in enumerate(results, 1):
        encoded.append(encode_struct(DescribeUserScramCredentialsResponse, result, _VERSION))
        if count % DESCRIBED_SCRAM_USERS_A_TURN == 0:
            yield
    return DescribeUserScramCredentialsResponse(
        results=EncodedArray(len(encoded), b"".join(encoded)),  # type: ignore[arg-type]
    )


def _result(image: MetadataImage, name: str, *, is_repeated: bool) -> Result:
    if is_repeated:
        return Result(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {name}",
        )
    found = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism in ScramMechanism
        if (credential := image.scram_credentials.get((mechanism, name))) is not None
    ]
    if not found:
        return Result(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return Result(user=name, credential_infos=tuple(found))
