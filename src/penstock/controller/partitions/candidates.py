"""Which brokers may lead a partition: those that are up, stay up, and have the directory of their
replica. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionState,
)

# A replica whose place is not known yet is taken to be there.
_ANYWHERE = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)


class Candidates:
    """As the image says, but that `added` counts as up already, and `removed` as gone already."""

    def __init__(
        self, image: MetadataImage, *, added: int | None = None, removed: int | None = None
    ) -> None:
        self._directories: Mapping[int, frozenset[UUID]] = {
            broker.id: frozenset((*broker.directories, *_ANYWHERE))
            for broker in image.brokers.values()
            if broker.id != removed and (broker.id == added or broker.is_active)
        }

    def may_lead(self, state: PartitionState, replica: int) -> bool:
        directories = self._directories.get(replica)
        return (
            directories is not None
            and replica in state.replicas
            and (
                len(directories) == len(_ANYWHERE)
                or state.directories[state.replicas.index(replica)] in directories
            )
        )
