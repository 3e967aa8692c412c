"""Replays the records of access control entries (Kafka's `AclsDelta`). PURE.

Each entry has an id of its own: removing one of several entries of a resource leaves the others as
they are (CVE-2024-27309).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from uuid import UUID

from penstock.errors import InvariantBroken
from penstock.metadata.image import MetadataImage
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from penstock.security.acls import Acl


class AclsDelta:
    """Makes the next version of the entries on the first change. `changes` has each changed entry
    by its id, before and after."""

    def __init__(self, image: MetadataImage) -> None:
        self.changes: dict[UUID, tuple[Acl | None, Acl | None]] = {}
        self._image = image
        self._acls: MutableMapping[UUID, Acl] | None = None
        self._ids: MutableMapping[Acl, UUID] | None = None

    def settled_acls(self) -> Mapping[UUID, Acl]:
        return self._image.acls if self._acls is None else settled(self._acls)

    def settled_ids(self) -> Mapping[Acl, UUID]:
        return self._image.acl_ids if self._ids is None else settled(self._ids)

    def replay_entry(self, record: AccessControlEntryRecord) -> None:
        acls, ids = self._editable()
        before, acl = acls.get(record.id), acl_of(record)
        if before is not None:
            _forget(ids, before, record.id)
        acls[record.id] = acl
        ids[acl] = record.id
        self._changed(record.id, acl)

    def replay_remove_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        acls, ids = self._editable()
        before = acls.pop(record.id, None)
        if before is None:
            raise InvariantBroken(
                f"RemoveAccessControlEntryRecord for an entry that does not exist: {record}"
            )
        _forget(ids, before, record.id)
        self._changed(record.id, None)

    def _editable(self) -> tuple[MutableMapping[UUID, Acl], MutableMapping[Acl, UUID]]:
        if self._acls is None or self._ids is None:
            self._acls = next_version(self._image.acls)
            self._ids = next_version(self._image.acl_ids)
        return self._acls, self._ids

    def _changed(self, acl_id: UUID, after: Acl | None) -> None:
        before = self._image.acls.get(acl_id)
        if before == after:
            self.changes.pop(acl_id, None)
        else:
            self.changes[acl_id] = before, after


def _forget(ids: MutableMapping[Acl, UUID], acl: Acl, acl_id: UUID) -> None:
    """An entry that occurs twice has the id that was added last."""
    if ids.get(acl) == acl_id:
        del ids[acl]


def acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
