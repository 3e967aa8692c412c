"""From an image and records to the next image, and what they changed. PURE.

Owns the order of things: transactions, and which part of the image a record belongs to. What a
record means for a topic is in `topic_records`, for a node in `node_records`. A record that does not
fit the image is a broken invariant: the log was decided by ourselves or by Apache Kafka, so going
on would only spread the damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.errors import InvariantBroken, invariant
from penstock.metadata import kept_records, node_records, topic_records
from penstock.metadata.draft import Draft
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.protocol.internal.metadata_settings import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)


def replay(
    image: MetadataImage, records: Iterable[object], offset: int
) -> tuple[MetadataImage, MetadataDelta]:
    invariant(
        offset >= image.offset,
        f"metadata was applied up to offset {image.offset}, and now up to the earlier {offset}",
    )
    draft = Draft(image)
    held = None if image.open_transaction is None else list(image.open_transaction)
    for record in records:
        held = _take(draft, held, record)
    return draft.finish(offset, None if held is None else tuple(held))


def _take(draft: Draft, held: list[object] | None, record: object) -> list[object] | None:
    """Applies a record, or holds it back while a transaction is open. Returns what is held."""
    if isinstance(record, BeginTransactionRecord):
        invariant(held is None, f"metadata transaction {record.name} begins within another")
        return []
    if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
        invariant(held is not None, f"{type(record).__name__} without a metadata transaction")
        if isinstance(record, EndTransactionRecord):
            for earlier in held or ():
                _apply(draft, earlier)
        return None
    if held is None:
        _apply(draft, record)
    else:
        held.append(record)
    return held


def _apply(draft: Draft, record: object) -> None:
    apply = _APPLY.get(type(record))
    if apply is None:
        raise InvariantBroken(f"{type(record).__name__} is no record of the cluster's metadata")
    apply(draft, record)


def _config(draft: Draft, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    changed = dict(draft.configs.get(resource, {}))
    if record.value is None:
        changed.pop(record.name, None)
    else:
        changed[record.name] = record.value
    draft.set_config(resource, changed)


def _feature_level(draft: Draft, record: FeatureLevelRecord) -> None:
    """Level 0 means that the feature is off, which is the same as not being there."""
    features = draft.edit_features()
    if record.feature_level == 0:
        features.pop(record.name, None)
    else:
        features[record.name] = record.feature_level


def _no_op(_draft: Draft, _record: NoOpRecord) -> None:
    pass


_APPLY: Mapping[type, Callable[[Draft, Any], None]] = {
    ConfigRecord: _config,
    FeatureLevelRecord: _feature_level,
    NoOpRecord: _no_op,
    **topic_records.APPLY,
    **node_records.APPLY,
    **kept_records.APPLY,
}
