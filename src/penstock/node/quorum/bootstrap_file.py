"""bootstrap.checkpoint: the first metadata records of a new cluster, in Kafka's format.

`format --add-scram` and `penstock up --secure` write it into the metadata directory of a
controller. The first active controller of a cluster appends its credentials and access control
entries to the empty metadata log. Kafka writes the file always; Penstock ignores the feature levels
in it, which are those of its release.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.controller.features import METADATA_LEVEL
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_BOOTSTRAP_BYTES
from penstock.metadata.image import METADATA_VERSION, MetadataImage
from penstock.node.quorum.snapshot_file import at_offset, checked_batches, snapshot_batches
from penstock.protocol.internal.metadata_records import decode_record
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord
from penstock.records.record import records_of
from penstock.world import Disk

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"

FirstRecord = UserScramCredentialRecord | AccessControlEntryRecord


def bootstrap_content(records: Iterable[object]) -> bytes:
    """Return a file with these records."""
    version = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
    image, _delta = MetadataImage.empty().replay((version, *records), 0)
    content, offset = b"", 0
    for batch, count in snapshot_batches(image, 0, 0):
        content, offset = content + at_offset(batch, offset), offset + count
    return content


def read_bootstrap(disk: Disk, directory: str) -> tuple[FirstRecord, ...]:
    """Return the credentials and access control entries in a metadata directory's file; none if it
    has no file. Raises KafkaError if it is damaged."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    if not disk.exists(path):
        return ()
    data = disk.read(path)
    if len(data) > MAX_BOOTSTRAP_BYTES:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has {len(data)} bytes")
    decoded = [
        decode_record(record.value or b"")
        for position, header in checked_batches(path, data)
        if not header.is_control
        for record in records_of(data[position : position + header.size], header)
    ]
    return tuple(record for record in decoded if isinstance(record, FirstRecord))
