"""The names of files in a log directory, as Kafka writes them."""

from __future__ import annotations

import re
from uuid import UUID

from penstock.ids import TopicPartition
from penstock.limits import MAX_FILE_NAME_BYTES

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
# The output of a compaction, and the same when it is about to replace its source segments.
CLEANED = ".cleaned"
SWAP = ".swap"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
# Not Kafka's: markers in a partition's directory for the next process. See `flush`.
SYNCING = ".penstock_syncing"
TRUNCATING = ".penstock_cutting"
# Not Kafka's either: the replica moved here from another log directory, which may still have a
# copy; and the replica moved from here to another log directory. See `moving`.
MOVED = ".penstock_moved"
LEFT = ".penstock_left"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_PARTITION_DIR = re.compile(r"(.+)-(\d+)")
_DELETED_DIR = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")
_FUTURE_DIR = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-future")
_STRAY_DIR = re.compile(r".+\.[0-9a-f]{32}-stray")


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return the offset and the suffix of a segment's file; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition that a directory belongs to; None for any other name."""
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_deleted_dir(name: str) -> bool:
    """Return True for a partition whose deletion had begun when the node stopped: topic-0.<32 hex
    digits>-delete."""
    return _DELETED_DIR.fullmatch(name) is not None


def future_dir(partition: TopicPartition, uuid: UUID) -> str:
    """Return the name of the directory to which a moving partition is copied: topic-0.<32 hex
    digits>-future."""
    return f"{partition}.{uuid.hex}{FUTURE_DIR_SUFFIX}"


def parse_future_dir(name: str) -> TopicPartition | None:
    """Return the partition that is copied to a directory; None for any other name."""
    match = _FUTURE_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_stray_dir(name: str) -> bool:
    """Return True for a log that had no replica on this broker at an earlier start."""
    return _STRAY_DIR.fullmatch(name) is not None


def renamed_dir(partition: TopicPartition, uuid: UUID, suffix: str) -> str:
    """Return the name of a log that is out of service: topic-0.<32 hex digits>-delete or -stray.
    The name of a long topic is cut, as in Kafka."""
    suffix = f".{uuid.hex}{suffix}"
    return str(partition)[: MAX_FILE_NAME_BYTES - len(suffix)] + suffix
