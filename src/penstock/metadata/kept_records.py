"""Records that nothing reads yet: quotas, access rules, credentials, tokens. They are kept as they
are, by what tells them apart. PURE.

A record leaves this file when the image gets a part of its own for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import invariant
from penstock.metadata.draft import Draft
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.internal.metadata_settings import ClientQuotaRecord, ZkMigrationStateRecord

Key = tuple[object, ...]


def _quota(draft: Draft, record: ClientQuotaRecord) -> None:
    """A quota is removed by a record of the same kind. Removing one that is not there changes
    nothing, as in Kafka."""
    key = (
        "quota",
        frozenset((one.entity_type, one.entity_name) for one in record.entity),
        record.key,
    )
    if record.remove:
        draft.edit_kept().pop(key, None)
    else:
        draft.edit_kept()[key] = record


def _keep(key_of: Callable[[Any], Key]) -> Callable[[Draft, object], None]:
    def keep(draft: Draft, record: object) -> None:
        draft.edit_kept()[key_of(record)] = record

    return keep


def _remove(key_of: Callable[[Any], Key]) -> Callable[[Draft, object], None]:
    def remove(draft: Draft, record: object) -> None:
        removed = draft.edit_kept().pop(key_of(record), None)
        invariant(
            removed is not None, f"{type(record).__name__} removes what is not there: {record}"
        )

    return remove


def _acl(record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> Key:
    return ("acl", record.id)


def _scram(record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> Key:
    return ("scram", record.name, record.mechanism)


def _token(record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> Key:
    return ("token", record.token_id)


def _migration(_record: ZkMigrationStateRecord) -> Key:
    return ("migration",)


APPLY: Mapping[type, Callable[[Draft, Any], None]] = {
    ClientQuotaRecord: _quota,
    AccessControlEntryRecord: _keep(_acl),
    RemoveAccessControlEntryRecord: _remove(_acl),
    UserScramCredentialRecord: _keep(_scram),
    RemoveUserScramCredentialRecord: _remove(_scram),
    DelegationTokenRecord: _keep(_token),
    RemoveDelegationTokenRecord: _remove(_token),
    ZkMigrationStateRecord: _keep(_migration),
}
