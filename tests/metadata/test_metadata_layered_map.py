"""A large mapping whose next version shares almost all of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata import layered_map
from penstock.metadata.image import MetadataImage
from penstock.metadata.layered_map import LayeredMap, next_version, settled
from penstock.protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

TOPICS = 5_000

# A key, and its new value; None removes it.
_changes = st.lists(st.tuples(st.integers(0, 12), st.none() | st.integers(0, 3)), max_size=6)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(layered_map, "_SMALL", 2)
        yield


@given(st.lists(_changes, max_size=12))
def test_versions_have_the_items_of_dicts_and_do_not_change(
    versions: list[list[tuple[int, int | None]]],
) -> None:
    before: dict[int, int] = dict.fromkeys(range(8), 0)
    mapping = settled(next_version(before))
    expected = [dict(before)]
    made = [mapping]
    for changes in versions:
        draft, model = next_version(mapping), dict(expected[-1])
        for key, value in changes:
            if value is None:
                assert draft.pop(key, None) == model.pop(key, None)
            else:
                draft[key] = model[key] = value
        mapping = settled(draft)
        expected.append(model)
        made.append(mapping)
    for version, model in zip(made, expected, strict=True):
        assert version == model
        assert len(version) == len(model)
        assert list(version) == [key for key, _value in version.items()]
        assert sorted(version) == sorted(model)
        assert list(version.values()) == [version[key] for key in version]
        assert {key: version.get(key) for key in range(13)} == {
            key: model.get(key) for key in range(13)
        }
        assert [key in version for key in range(13)] == [key in model for key in range(13)]


def test_keys_are_in_the_order_of_their_addition() -> None:
    draft = next_version(dict.fromkeys(range(5), 0))
    draft[9] = draft[7] = draft[2] = 1
    del draft[3]
    assert isinstance(draft, LayeredMap)
    assert list(draft) == [0, 1, 2, 4, 9, 7]
    for key in range(20, 40):
        draft[key] = 1
    assert isinstance(settled(draft), dict)
    assert list(settled(draft)) == [0, 1, 2, 4, 9, 7, *range(20, 40)]


def test_a_key_that_is_not_there_cannot_be_removed_or_read() -> None:
    draft = next_version(dict.fromkeys(range(5), 0))
    del draft[1]
    for key in (1, 99):
        with pytest.raises(KeyError):
            del draft[key]
        with pytest.raises(KeyError):
            draft[key]


def test_a_change_of_one_partition_does_not_copy_the_other_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layered_map, "_SMALL", 256)
    records: list[object] = []
    for number in range(TOPICS):
        topic_id = UUID(int=10_000 + number)
        records.append(TopicRecord(name=f"t{number}", topic_id=topic_id))
        records.append(
            PartitionRecord(
                topic_id=topic_id, partition_id=0, replicas=(1, 2), isr=(1, 2), leader=1
            )
        )
    image = MetadataImage.empty().replay(records, len(records) - 1)[0]
    change = PartitionChangeRecord(topic_id=UUID(int=10_007), partition_id=0, isr=(1,))
    tracemalloc.start()
    after, delta = image.replay([change], len(records))
    _size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after.topics["t7"].partitions[0].isr == (1,)
    assert image.topics["t7"].partitions[0].isr == (1, 2)
    assert list(delta.topics) == [UUID(int=10_007)]
    assert {key: list(value) for key, value in delta.partitions.items()} == {UUID(int=10_007): [0]}
    assert after.topic_names is image.topic_names
    assert peak < 20 * TOPICS, f"{peak} bytes were allocated: the topics were copied"
