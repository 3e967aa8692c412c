"""The names of files in a log directory, as Kafka writes them."""

from __future__ import annotations

import re
from uuid import UUID

from penstock.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
# What compaction has written, and what it is about to put in the place of the segments that it was
# made of.
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
# Not Kafka's: words of a process that died or failed to the next one, in a partition's directory.
# See `certainty`.
SYNCING = ".penstock_syncing"
CUTTING = ".penstock_cutting"
# Nor is this: the replica has moved here from another log directory, where it may still lie. See
# `moving`.
MOVED = ".penstock_moved"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_PARTITION_DIR = re.compile(r"(.+)-(\d+)")
_DELETED_DIR = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")
_FUTURE_DIR = re.compile(r".+-\d+\.[0-9a-f]{32}-future")


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of a segment's file, None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition whose directory this is, None for any other name."""
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_deleted_dir(name: str) -> bool:
    """A partition that was being deleted when the node stopped: topic-0.<32 hex digits>-delete."""
    return _DELETED_DIR.fullmatch(name) is not None


def future_dir(partition: TopicPartition, uuid: UUID) -> str:
    """The directory that a partition is copied to before it moves there: topic-0.<32 hex
    digits>-future."""
    return f"{partition}.{uuid.hex}{FUTURE_DIR_SUFFIX}"


def is_future_dir(name: str) -> bool:
    return _FUTURE_DIR.fullmatch(name) is not None
