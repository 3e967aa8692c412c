"""AlterUserScramCredentials: SCRAM credentials in the metadata log (Kafka's ScramControlManager).
PURE.

A client sends the salted password. The controller stores the keys that are derived from it, which
do not let anybody log in.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import (
    MAX_SCRAM_CREDENTIALS_PER_REQUEST,
    MAX_SCRAM_NAME_CHARACTERS,
    MAX_SCRAM_SALT_BYTES,
)
from penstock.metadata.image import MetadataImage
from penstock.metadata.scram_delta import credential_record
from penstock.protocol.internal.metadata_security import RemoveUserScramCredentialRecord
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
)
from penstock.security.sasl.scram_keys import credential_of

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion
Result = AlterUserScramCredentialsResponse.Result

_TWICE = "A user credential cannot be altered twice in the same request"


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest, _context: ControllerContext
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """Set and remove credentials. Each user succeeds or fails on its own, and may occur once."""
    changes: tuple[Deletion | Upsertion, ...] = (*request.deletions, *request.upsertions)
    if len(changes) > MAX_SCRAM_CREDENTIALS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot alter more than {MAX_SCRAM_CREDENTIALS_PER_REQUEST} user credentials in a "
            "single request. Send them in several requests.",
        )
    repeated = _repeated(change.name for change in changes)
    records: list[object] = []
    results: dict[str, Result] = {}
    for change in changes:
        name = change.name
        try:
            if name in repeated:
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            if isinstance(change, Deletion):
                records.append(_removal(image, change))
            else:
                records.append(_upsertion(change))
            results[name] = Result(user=name, error_message=None)
        except KafkaError as error:
            results[name] = Result(user=name, error_code=error.code, error_message=error.message)
    response = AlterUserScramCredentialsResponse(results=tuple(results.values()))
    return ControllerResult(tuple(records), response)


def _repeated(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated


def _removal(image: MetadataImage, deletion: Deletion) -> RemoveUserScramCredentialRecord:
    mechanism = _checked_mechanism(deletion.name, deletion.mechanism)
    if (mechanism, deletion.name) not in image.scram_credentials:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=mechanism)


def _upsertion(upsertion: Upsertion) -> object:
    mechanism = _checked_mechanism(upsertion.name, upsertion.mechanism)
    if upsertion.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(upsertion.name) > MAX_SCRAM_NAME_CHARACTERS or "\0" in upsertion.name:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Username must have at most {MAX_SCRAM_NAME_CHARACTERS} characters, without NUL",
        )
    if not 0 < len(upsertion.salt) <= MAX_SCRAM_SALT_BYTES:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salt must have 1 to {MAX_SCRAM_SALT_BYTES} bytes",
        )
    salted = bytes(upsertion.salted_password)
    if len(salted) != mechanism.key_bytes:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salted password of {mechanism.sasl_name} must have {mechanism.key_bytes} bytes",
        )
    credential = credential_of(mechanism, salted, bytes(upsertion.salt), upsertion.iterations)
    return credential_record((mechanism, upsertion.name), credential)


def _checked_mechanism(name: str, mechanism: int) -> ScramMechanism:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        return ScramMechanism(mechanism)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
