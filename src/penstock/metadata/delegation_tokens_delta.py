"""Replays the records of delegation tokens (Kafka's `DelegationTokenDelta`). PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from penstock.errors import InvariantBroken
from penstock.metadata.image import MetadataImage
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from penstock.security.delegation_tokens import DelegationToken
from penstock.security.principals import parse_principal


class DelegationTokensDelta:
    """Makes the next version of the tokens on the first change."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._tokens: MutableMapping[str, DelegationToken] | None = None

    def settled_tokens(self) -> Mapping[str, DelegationToken]:
        if self._tokens is None:
            return self._image.delegation_tokens
        return settled(self._tokens)

    def replay_token(self, record: DelegationTokenRecord) -> None:
        """Add a token, or replace it: a record of a known id changes when it expires."""
        try:
            token = token_of(record)
        except ValueError as error:
            raise InvariantBroken(f"DelegationTokenRecord of {record.token_id}: {error}") from None
        self._editable()[record.token_id] = token

    def replay_remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """As in Kafka, removing a token that does not exist has no effect."""
        self._editable().pop(record.token_id, None)

    def _editable(self) -> MutableMapping[str, DelegationToken]:
        if self._tokens is None:
            self._tokens = next_version(self._image.delegation_tokens)
        return self._tokens


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """Raises ValueError for a principal that cannot be parsed."""
    return DelegationToken(
        record.token_id,
        parse_principal(record.owner),
        parse_principal(record.requester),
        tuple(map(parse_principal, record.renewers)),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=tuple(map(str, token.renewers)),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )


def token_records(image: MetadataImage) -> Iterator[DelegationTokenRecord]:
    return map(token_record, image.delegation_tokens.values())
