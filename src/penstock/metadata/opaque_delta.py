"""Replays records that no part of the product reads yet: quotas, ACLs, SCRAM credentials, tokens.

The image retains them by key, so that a snapshot does not lose them. A record type leaves this file
when the image gets a part for it. PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import invariant
from penstock.metadata.image import MetadataImage
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

_RETAINED: Mapping[type, Callable[[Any], Key]] = {
    AccessControlEntryRecord: lambda record: ("acl", record.id),
    UserScramCredentialRecord: lambda record: ("scram", record.name, record.mechanism),
    DelegationTokenRecord: lambda record: ("token", record.token_id),
    ZkMigrationStateRecord: lambda _record: ("migration",),
}
_REMOVING: Mapping[type, Callable[[Any], Key]] = {
    RemoveAccessControlEntryRecord: lambda record: ("acl", record.id),
    RemoveUserScramCredentialRecord: lambda record: ("scram", record.name, record.mechanism),
    RemoveDelegationTokenRecord: lambda record: ("token", record.token_id),
}


class OpaqueRecordsDelta:
    """Copies the retained records of the image on the first change."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._records: dict[Key, object] | None = None

    @property
    def records(self) -> Mapping[Key, object]:
        return self._image.opaque_records if self._records is None else self._records

    def replay(self, record: object) -> bool:
        """Return False if the record's type is unknown."""
        kind = type(record)
        if kind in _RETAINED:
            self._editable()[_RETAINED[kind](record)] = record
        elif kind in _REMOVING:
            removed = self._editable().pop(_REMOVING[kind](record), None)
            invariant(
                removed is not None, f"{kind.__name__} for an entry that does not exist: {record}"
            )
        elif isinstance(record, ClientQuotaRecord):
            self._replay_quota(record)
        else:
            return False
        return True

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        """The record type of a quota also removes it. As in Kafka, removing a quota that does not
        exist has no effect."""
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        key = ("quota", entity, record.key)
        if record.remove:
            self._editable().pop(key, None)
        else:
            self._editable()[key] = record

    def _editable(self) -> dict[Key, object]:
        if self._records is None:
            self._records = dict(self._image.opaque_records)
        return self._records
