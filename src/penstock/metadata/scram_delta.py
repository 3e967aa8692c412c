"""Replays the records of SCRAM credentials (Kafka's `ScramDelta`). PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from penstock.errors import InvariantBroken
from penstock.metadata.image import MetadataImage
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.security.sasl.scram_credential import (
    ScramCredential,
    ScramCredentialKey,
    ScramShape,
    shape_of,
)


class ScramDelta:
    """Makes the next version of the credentials on the first change. `shapes` counts their shapes
    by the number of the mechanism."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._credentials: MutableMapping[ScramCredentialKey, ScramCredential] | None = None
        self.shapes = image.scram_shapes
        self._changed_shapes: dict[int, dict[ScramShape, int]] = {}

    def settled_credentials(self) -> Mapping[ScramCredentialKey, ScramCredential]:
        if self._credentials is None:
            return self._image.scram_credentials
        return settled(self._credentials)

    def replay_credential(self, record: UserScramCredentialRecord) -> None:
        key = record.mechanism, record.name
        credentials = self._editable()
        before = credentials.get(key)
        if before is not None:
            self._count(record.mechanism, before, -1)
        credentials[key] = ScramCredential(
            bytes(record.salt),
            bytes(record.stored_key),
            bytes(record.server_key),
            record.iterations,
        )
        self._count(record.mechanism, credentials[key], 1)

    def replay_remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        before = self._editable().pop((record.mechanism, record.name), None)
        if before is None:
            raise InvariantBroken(
                f"RemoveUserScramCredentialRecord for a credential that does not exist: {record}"
            )
        self._count(record.mechanism, before, -1)

    def _count(self, mechanism: int, credential: ScramCredential, difference: int) -> None:
        counts = self._changed_shapes.get(mechanism)
        if counts is None:
            counts = self._changed_shapes[mechanism] = dict(self.shapes.get(mechanism, {}))
            self.shapes = {**self.shapes, mechanism: counts}
        shape = shape_of(credential)
        count = counts.pop(shape, 0) + difference
        if count:
            counts[shape] = count

    def _editable(self) -> MutableMapping[ScramCredentialKey, ScramCredential]:
        if self._credentials is None:
            self._credentials = next_version(self._image.scram_credentials)
        return self._credentials


def credential_record(
    key: ScramCredentialKey, credential: ScramCredential
) -> UserScramCredentialRecord:
    mechanism, name = key
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def credential_records(image: MetadataImage) -> Iterator[UserScramCredentialRecord]:
    for key, credential in image.scram_credentials.items():
        yield credential_record(key, credential)
