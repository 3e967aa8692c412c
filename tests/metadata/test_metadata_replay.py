"""Replay: properties of all histories of records, and the meaning of single records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvariantBroken
from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    TOPIC,
    UNASSIGNED_DIRECTORY,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.protocol.internal.metadata_nodes import (
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from penstock.protocol.internal.metadata_records import RECORDS, decode_record, encode_record
from penstock.protocol.internal.metadata_security import RemoveAccessControlEntryRecord
from penstock.protocol.internal.metadata_settings import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from penstock.protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.metadata.metadata_histories import aborted, committed, histories

EMPTY = MetadataImage.empty()
A, B, D1, D2 = (UUID(int=number) for number in (1_001, 1_002, 2_001, 2_002))
TOPIC_A = TopicRecord(name="a", topic_id=A)
PARTITION = PartitionRecord(
    topic_id=A,
    partition_id=0,
    replicas=(1, 2),
    isr=(1, 2),
    leader=1,
    leader_epoch=3,
    partition_epoch=5,
    directories=(D1, D2),
)
STATE = PartitionState(
    replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=5, directories=(D1, D2)
)


def replayed(*records: object) -> MetadataImage:
    return EMPTY.replay(records, 9)[0]


def changed(**change: Any) -> PartitionState:
    """Return the partition after a PartitionChangeRecord with these fields, encoded and decoded."""
    record = decode_record(
        encode_record(PartitionChangeRecord(topic_id=A, partition_id=0, **change))
    )
    return replayed(TOPIC_A, PARTITION, record).topics["a"].partitions[0]


@given(histories())
def test_replaying_the_records_of_an_image_gives_the_image(history: list[object]) -> None:
    image = EMPTY.replay(history, 50)[0]
    assert EMPTY.replay(image.records(), image.offset)[0] == image


@given(histories(), histories())
def test_replaying_the_records_of_an_image_within_a_transaction_gives_the_image(
    history: list[object], begun: list[object]
) -> None:
    image = EMPTY.replay([*aborted(history), BeginTransactionRecord(), *begun], 50)[0]
    assert EMPTY.replay(image.records(), image.offset)[0] == image


@given(histories(), st.integers(0, 60))
def test_batch_boundaries_do_not_matter(history: list[object], cut: int) -> None:
    first = EMPTY.replay(history[:cut], 10)[0]
    assert first.replay(history[cut:], 50)[0] == EMPTY.replay(history, 50)[0]


@given(histories(), st.integers(0, 60))
def test_replay_does_not_change_the_image(history: list[object], cut: int) -> None:
    before = EMPTY.replay(history[:cut], 10)[0]
    before.replay(history[cut:], 50)
    assert before == EMPTY.replay(history[:cut], 10)[0]


@given(histories(), st.integers(0, 62))
def test_transaction_takes_effect_at_its_end_as_a_whole(history: list[object], cut: int) -> None:
    records = committed(history)
    open_, _delta = EMPTY.replay(records[: min(cut, len(records) - 1)], 10)
    assert (open_.topics, open_.brokers, open_.configs, open_.client_quotas) == ({}, {}, {}, {})
    assert (
        open_.replay(records[min(cut, len(records) - 1) :], 50)[0] == EMPTY.replay(history, 50)[0]
    )


@given(histories())
def test_aborted_transaction_has_no_effect(history: list[object]) -> None:
    image, delta = EMPTY.replay(aborted(history), 50)
    assert (image, delta) == (MetadataImage(offset=50), MetadataDelta())


@given(histories(), st.integers(0, 60))
def test_delta_has_every_changed_topic_and_resource(history: list[object], cut: int) -> None:
    before = EMPTY.replay(history[:cut], 10)[0]
    image, delta = before.replay(history[cut:], 50)
    for topic_id in {*before.topic_names, *image.topic_names}:
        pair = before.topic_by_id(topic_id), image.topic_by_id(topic_id)
        assert delta.topics.get(topic_id, pair) == pair
        assert topic_id in delta.topics or pair[0] == pair[1]
    assert {
        key
        for key in {*before.configs, *image.configs}
        if before.configs.get(key) != image.configs.get(key)
    } <= delta.configs


@given(histories())
def test_partitions_are_ordered_by_index(history: list[object]) -> None:
    topics = [record for record in history if isinstance(record, TopicRecord)]
    rest = [record for record in history if not isinstance(record, TopicRecord)]
    partitions = [record for record in rest if isinstance(record, PartitionRecord)]
    names = {record.name: record for record in topics}
    last = {record.topic_id for record in names.values()}
    records = [
        *names.values(),
        *(record for record in reversed(partitions) if record.topic_id in last),
    ]
    for topic in EMPTY.replay(records, 50)[0].topics.values():
        assert list(topic.partitions) == sorted(topic.partitions)


def replay_error(record: object) -> str:
    try:
        replayed(record)
    except InvariantBroken as broken:
        return str(broken)
    return ""


def test_every_record_type_is_replayed() -> None:
    """Some do not fit the empty image, but none has an unknown type."""
    assert [
        record.__name__
        for record in RECORDS
        if "is not a metadata record" in replay_error(record())
    ] == []


def test_topics_are_created_and_removed_with_their_partitions() -> None:
    image, delta = EMPTY.replay([TOPIC_A, PARTITION], 9)
    topic = TopicImage("a", A, {0: STATE})
    assert (image.topics, image.topic_names, delta.topics) == (
        {"a": topic},
        {A: "a"},
        {A: (None, topic)},
    )
    image, delta = image.replay([RemoveTopicRecord(topic_id=A)], 10)
    assert (image, delta.topics) == (MetadataImage(offset=10), {A: (topic, None)})


def test_topic_created_again_is_another_topic() -> None:
    image = replayed(TOPIC_A)
    _image, delta = image.replay(
        [RemoveTopicRecord(topic_id=A), TopicRecord(name="a", topic_id=B)], 10
    )
    assert delta.topics == {A: (TopicImage("a", A, {}), None), B: (None, TopicImage("a", B, {}))}


def test_delta_omits_topics_created_and_removed_again() -> None:
    assert EMPTY.replay([TOPIC_A, RemoveTopicRecord(topic_id=A)], 9)[1].topics == {}


def test_partition_changes() -> None:
    assert changed(leader=2) == changed(leader=2, isr=(1, 2))
    assert (
        changed(leader=2).leader,
        changed(leader=2).leader_epoch,
        changed(leader=2).partition_epoch,
    ) == (2, 4, 6)
    assert changed(leader=1).leader_epoch == 4
    assert (
        changed(isr=(2,)).isr,
        changed(isr=(2,)).leader_epoch,
        changed(isr=(2,)).partition_epoch,
    ) == ((2,), 3, 6)
    assert changed(isr=(), leader=-1).leader == -1
    assert changed(leader_recovery_state=1).leader_recovery_state == 1


def test_remaining_replicas_keep_their_directory() -> None:
    assert changed(replicas=(3, 2)).directories == (UNASSIGNED_DIRECTORY, D2)
    assert changed(directories=(D2, D1)).directories == (D2, D1)


def test_partition_without_directories_has_migrating_ones() -> None:
    old = PartitionRecord(topic_id=A, partition_id=0, replicas=(1,), isr=(1,), leader=1)
    assert replayed(TOPIC_A, old).topics["a"].partitions[0].directories == (MIGRATING_DIRECTORY,)


def test_eligible_replicas_are_cleared_for_one_topic_or_all() -> None:
    eligible = PartitionRecord(
        topic_id=A,
        partition_id=0,
        replicas=(1,),
        eligible_leader_replicas=(1,),
        last_known_elr=(1,),
        partition_epoch=6,
    )
    for name in ("", "a"):
        state = (
            replayed(TOPIC_A, eligible, ClearElrRecord(topic_name=name)).topics["a"].partitions[0]
        )
        assert (state.eligible_leader_replicas, state.last_known_elr, state.partition_epoch) == (
            (),
            (),
            7,
        )


def test_settings_are_removed_by_null_and_with_their_topic() -> None:
    config = ConfigRecord(resource_type=TOPIC, resource_name="a", name="n", value="v")
    image, delta = EMPTY.replay([TOPIC_A, config], 9)
    assert (image.topic_configs("a"), delta.configs) == ({"n": "v"}, frozenset({(TOPIC, "a")}))
    assert (
        replayed(
            TOPIC_A,
            config,
            ConfigRecord(resource_type=TOPIC, resource_name="a", name="n", value=None),
        ).configs
        == {}
    )
    image, delta = image.replay([RemoveTopicRecord(topic_id=A)], 10)
    assert (image.configs, delta.configs) == ({}, frozenset({(TOPIC, "a")}))


def test_feature_at_level_0_is_absent() -> None:
    on, off = (FeatureLevelRecord(name="f", feature_level=level) for level in (2, 0))
    assert (replayed(on).features, replayed(on, off).features) == ({"f": 2}, {})


def test_records_without_effect_advance_the_offset() -> None:
    assert EMPTY.replay([NoOpRecord()], 7) == (MetadataImage(offset=7), MetadataDelta())
    assert EMPTY.replay([], 8)[0].offset == 8


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([PARTITION], "which does not exist"),
        ([RemoveTopicRecord(topic_id=A)], "which does not exist"),
        (
            [TOPIC_A, PartitionChangeRecord(topic_id=A, partition_id=0)],
            "PartitionChangeRecord for a-0, which does not exist",
        ),
        ([TOPIC_A, TopicRecord(name="a", topic_id=B)], "exists already"),
        ([TOPIC_A, TopicRecord(name="b", topic_id=A)], "an id in use"),
        (
            [
                TOPIC_A,
                PartitionRecord(topic_id=A, partition_id=0, replicas=(1,), directories=(D1, D2)),
            ],
            "directories for 2",
        ),
        ([UnfenceBrokerRecord(id=1, epoch=1)], "it is not registered"),
        (
            [RegisterBrokerRecord(broker_id=1, broker_epoch=2), UnfenceBrokerRecord(id=1, epoch=1)],
            "registered with epoch 2",
        ),
        (
            [ProducerIdsRecord(next_producer_id=5), ProducerIdsRecord(next_producer_id=4)],
            "from 5 back to 4",
        ),
        ([RemoveAccessControlEntryRecord(id=A)], "for an entry that does not exist"),
        ([ClearElrRecord(topic_name="a")], "does not exist"),
        ([EndTransactionRecord()], "without a metadata transaction"),
        ([AbortTransactionRecord()], "without a metadata transaction"),
        (
            [BeginTransactionRecord(), BeginTransactionRecord(name="t")],
            "transaction t begins within another",
        ),
        (["text"], "str is not a metadata record"),
    ],
)
def test_records_that_do_not_fit_the_image_break_an_invariant(
    records: list[object], error: str
) -> None:
    with pytest.raises(InvariantBroken, match=error):
        replayed(*records)


def test_offsets_never_decrease() -> None:
    with pytest.raises(InvariantBroken, match="up to the earlier 5"):
        replayed(NoOpRecord()).replay([], 5)
