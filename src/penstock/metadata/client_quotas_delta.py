"""Replays the records of client quotas (Kafka's `ClientQuotasDelta`). PURE.

An entity is retained as it was written, whatever its types and keys are: a snapshot neither loses a
quota nor gives it to other clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from penstock.metadata.image import MetadataImage
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_settings import ClientQuotaRecord
from penstock.security.quotas.entities import QuotaEntity, quota_entity


class ClientQuotasDelta:
    """Makes the next version of the quotas on the first change."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._touched: set[QuotaEntity] = set()
        self._quotas: MutableMapping[QuotaEntity, Mapping[str, float]] | None = None

    def settled_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._image.client_quotas if self._quotas is None else settled(self._quotas)

    def changed_entities(self) -> frozenset[QuotaEntity]:
        before, after = self._image.client_quotas, self._quotas or {}
        return frozenset(each for each in self._touched if before.get(each) != after.get(each))

    def replay_quota(self, record: ClientQuotaRecord) -> None:
        """As in Kafka, removing a quota that does not exist has no effect."""
        if self._quotas is None:
            self._quotas = next_version(self._image.client_quotas)
        entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
        values = dict(self._quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._quotas[entity] = values
        else:
            self._quotas.pop(entity, None)
        self._touched.add(entity)


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a quota, or removes it."""
    return ClientQuotaRecord(
        entity=tuple(
            ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity
        ),
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def quota_records(image: MetadataImage) -> Iterator[ClientQuotaRecord]:
    for entity, values in image.client_quotas.items():
        for key, value in values.items():
            yield quota_record(entity, key, value)
