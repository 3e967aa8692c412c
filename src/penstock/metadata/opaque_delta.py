"""Replays records that no part of the product reads: the migration state of clusters that Apache
Kafka has upgraded from ZooKeeper.

The image retains them by key, so that a snapshot does not lose them. PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.metadata_settings import ZkMigrationStateRecord

Key = tuple[object, ...]

_RETAINED: Mapping[type, Callable[[Any], Key]] = {
    ZkMigrationStateRecord: lambda _record: ("migration",),
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
            return True
        return False

    def _editable(self) -> dict[Key, object]:
        if self._records is None:
            self._records = dict(self._image.opaque_records)
        return self._records
