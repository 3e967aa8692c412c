"""Quotas in the image: whatever a record has is retained, in snapshots too."""

from __future__ import annotations

import pytest

from penstock.metadata.image import MetadataImage, delta_steps
from penstock.protocol.internal.metadata_settings import (
    BeginTransactionRecord,
    ClientQuotaRecord,
    EndTransactionRecord,
)

Entity = ClientQuotaRecord.Entity
EMPTY = MetadataImage.empty()


def record(
    *parts: tuple[str, str | None], key: str = "k", value: float = 1.0, remove: bool = False
) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=tuple(Entity(entity_type=kind, entity_name=name) for kind, name in parts),
        key=key,
        value=value,
        remove=remove,
    )


def replayed(*records: object, image: MetadataImage = EMPTY) -> MetadataImage:
    return image.replay(records, image.offset + 1)[0]


def restored(image: MetadataImage) -> MetadataImage:
    return EMPTY.replay(image.records(), image.offset)[0]


def test_a_default_is_not_a_user_of_another_name_and_not_all_users() -> None:
    image = replayed(
        record(("user", None), value=1.0),
        record(("user", "a"), value=2.0),
        record(("user", "<default>"), value=3.0),
        record(("user", "a"), ("client-id", None), value=4.0),
        record(("user", "a"), ("client-id", "<default>"), value=5.0),
    )
    expected = {
        (("user", None),): {"k": 1.0},
        (("user", "a"),): {"k": 2.0},
        (("user", "<default>"),): {"k": 3.0},
        (("client-id", None), ("user", "a")): {"k": 4.0},
        (("client-id", "<default>"), ("user", "a")): {"k": 5.0},
    }
    assert image.client_quotas == expected
    assert restored(image).client_quotas == expected


def test_the_order_of_the_parts_of_an_entity_does_not_matter() -> None:
    image = replayed(
        record(("user", "a"), ("client-id", "b"), value=1.0),
        record(("client-id", "b"), ("user", "a"), value=2.0),
    )
    assert image.client_quotas == {(("client-id", "b"), ("user", "a")): {"k": 2.0}}


def test_removing_one_quota_leaves_the_others() -> None:
    image = replayed(
        record(("user", "a"), key="x"), record(("user", "a"), key="y"), record(("user", "b"))
    )
    image = replayed(record(("user", "a"), key="x", remove=True), image=image)
    assert image.client_quotas == {(("user", "a"),): {"y": 1.0}, (("user", "b"),): {"k": 1.0}}
    image = replayed(
        record(("user", "a"), key="y", remove=True),
        record(("user", "b"), key="none", remove=True),
        record(("user", "none"), remove=True),
        image=image,
    )
    assert image.client_quotas == {(("user", "b"),): {"k": 1.0}}
    assert restored(image).client_quotas == image.client_quotas


def test_types_and_keys_of_a_later_release_are_retained() -> None:
    image = replayed(record(("shelf", "a"), key="height", value=-0.5))
    assert restored(image).client_quotas == {(("shelf", "a"),): {"height": -0.5}}


def test_the_delta_names_what_changed() -> None:
    before = replayed(record(("user", "a")), record(("user", "b")), record(("user", "c")))
    after, delta = before.replay(
        [
            record(("user", "a"), value=2.0),
            record(("user", "b"), remove=True),
            record(("user", "c"), value=9.0),
            record(("user", "c"), value=1.0),
        ],
        9,
    )
    changed = {(("user", "a"),), (("user", "b"),)}
    assert delta.client_quotas == changed
    with pytest.raises(StopIteration) as end:
        next(delta_steps(before, after))
    assert end.value.value.client_quotas == changed


def test_quotas_of_a_transaction_wait_for_its_end() -> None:
    image = replayed(BeginTransactionRecord(), record(("user", "a")))
    assert image.client_quotas == {}
    image = restored(image)
    assert replayed(EndTransactionRecord(), image=image).client_quotas == {
        (("user", "a"),): {"k": 1.0}
    }
