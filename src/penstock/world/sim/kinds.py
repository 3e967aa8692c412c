"""The kinds of files on a node's disk, by Kafka's file names, and faults triggered by their use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

SEGMENT = "segment"
INDEX = "index"
PRODUCER_SNAPSHOT = "producer snapshot"
METADATA_SNAPSHOT = "metadata snapshot"
CHECKPOINT = "checkpoint"
QUORUM_STATE = "quorum-state"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
OTHER = "other"

# In this order: the offset checkpoints have names that end in "-checkpoint", metadata snapshots
# have names that end in ".checkpoint".
_ENDINGS = (
    (".log", SEGMENT),
    (".index", INDEX),
    (".timeindex", INDEX),
    (".txnindex", INDEX),
    (".snapshot", PRODUCER_SNAPSHOT),
    (".checkpoint", METADATA_SNAPSHOT),
    ("-checkpoint", CHECKPOINT),
    ("/quorum-state", QUORUM_STATE),
    ("/meta.properties", META_PROPERTIES),
    ("/partition.metadata", PARTITION_METADATA),
)
KINDS = tuple(dict.fromkeys(kind for _, kind in _ENDINGS))
# Suffixes of files that replace another file, or are about to be removed.
_TEMPORARY = (".tmp", ".part", ".deleted", ".cleaned", ".swap")


def file_kind(path: str) -> str:
    """Return the kind of a file. A file that is being written to replace another has its kind."""
    for suffix in _TEMPORARY:
        path = path.removesuffix(suffix)
    return next((kind for ending, kind in _ENDINGS if path.endswith(ending)), OTHER)


@dataclass(slots=True, eq=False)
class DiskTrigger:
    """Runs `action` at the `nth` of some operations on files of a kind (None: any).

    By default the operation takes effect, and the action runs right after the callback in which it
    happened, before any other callback. With `instead` the operation has no effect: the drive stops
    as by `SimDrive.stop_after`, and the action is expected to crash the node.
    """

    action: Callable[[], object]
    operations: frozenset[str]
    kind: str | None
    prefix: str
    nth: int
    instead: bool

    def matches(self, operation: str, path: str) -> bool:
        """Count an operation. Return whether it is the one."""
        if (
            operation not in self.operations
            or not path.startswith(self.prefix)
            or self.kind not in (None, file_kind(path))
        ):
            return False
        self.nth -= 1
        return self.nth == 0
