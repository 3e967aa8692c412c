"""DescribeTransactions, ListTransactions, and transactions that no batch can hold."""

from __future__ import annotations

import pytest

from penstock.coordinator.runtime.step import batch_bytes
from penstock.coordinator.transactions.records import least_batch_bytes, record
from penstock.coordinator.transactions.table import MarkerPartitions
from penstock.coordinator.transactions.transaction import (
    STATE_NAMES,
    Producer,
    Transaction,
    TransactionState,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from tests.coordinator.transactions.transaction_world import (
    A0,
    A1,
    B0,
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    WALL_MS,
    World,
    code,
)

S = TransactionState
P = FIRST_PRODUCER_ID


def test_states_have_kafkas_names() -> None:
    assert {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    } == STATE_NAMES
    assert [state.value for state in TransactionState] == list(range(8))


def test_describe() -> None:
    world = World()
    assert world.machine.describe(ID).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = world.new_producer()
    assert world.machine.describe(ID).transaction_start_time_ms == -1
    world.now_ms = 9
    world.add(producer, A1, A0, B0)
    described = world.machine.describe(ID)
    assert described.error_code == ErrorCode.NONE
    assert described.transactional_id == ID
    assert described.transaction_state == "Ongoing"
    assert described.transaction_timeout_ms == TIMEOUT_MS
    assert described.transaction_start_time_ms == WALL_MS + 9
    assert (described.producer_id, described.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [
        ("a", (0, 1)),
        ("b", (0,)),
    ]


def listed(
    world: World,
    states: tuple[str, ...] = (),
    producer_ids: tuple[int, ...] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[tuple[str, int, str]]:
    found = world.machine.list_transactions(
        states, producer_ids, duration_ms, pattern, world.now.wall_ms
    )
    return [(t.transactional_id, t.producer_id, t.transaction_state) for t in found if t]


def test_list_filters() -> None:
    world = World()
    world.new_producer(name="idle")
    world.add(world.new_producer(name="pay-1"), name="pay-1")
    world.now_ms = 1_000
    late = world.new_producer(name="pay-2")
    world.add(late, name="pay-2")
    world.ended(late, name="pay-2")
    idle, first, second = (
        ("idle", P, "Empty"),
        ("pay-1", P + 1, "Ongoing"),
        ("pay-2", P + 2, "PrepareCommit"),
    )
    assert listed(world) == [idle, first, second]
    assert listed(world, states=("Ongoing", "Empty")) == [idle, first]
    assert listed(world, states=("Nonsense",)) == []
    assert listed(world, producer_ids=(P + 1, P + 2, 7)) == [first, second]
    assert listed(world, duration_ms=0) == [idle, first]
    assert listed(world, duration_ms=999) == [idle, first]
    assert listed(world, duration_ms=1_000) == [idle], "it must be longer"
    assert listed(world, pattern="pay-.*") == [first, second]
    assert listed(world, pattern="pay") == [], "a pattern matches whole ids"
    assert listed(world, pattern="") == [idle, first, second]
    assert listed(world, states=("Ongoing",), pattern=".*-[12]", producer_ids=(P + 2,)) == []


def test_transactions_are_listed_as_they_were_when_listing_began() -> None:
    """A long list is encoded in several turns of the event loop."""
    world = World()
    for name in ("a", "b"):
        world.new_producer(name=name)
    found = world.machine.list_transactions((), (), -1, None, world.now.wall_ms)
    world.new_producer(name="c")
    assert [state.transactional_id for state in found if state] == ["a", "b"]


def test_the_partitions_of_markers_are_made_when_they_are_iterated() -> None:
    """With 100,000 partitions EndTxn held the event loop for 50 ms."""
    world = World()
    producer = world.new_producer()
    world.add(producer)
    world.ended(producer)
    (effect,) = world.markers
    assert type(effect.partitions) is MarkerPartitions
    partitions = MarkerPartitions({"a": tuple(range(100_000)), "b": (7,)})
    assert len(partitions) == 100_001
    assert next(iter(partitions)) == TopicPartition("a", 0)
    assert TopicPartition("b", 7) in partitions
    assert TopicPartition("c", 7) not in partitions
    assert MarkerPartitions({"a": (0, 1)}) == (TopicPartition("a", 0), TopicPartition("a", 1))


@pytest.mark.parametrize("pattern", ["(", "a**b(", "(?=a)", "x" * 2_000])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as caught:
        listed(World(), pattern=pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


# Sizes


def test_a_transaction_that_no_batch_can_hold_is_refused() -> None:
    world = World(max_batch_bytes=10_000)
    producer = world.new_producer()
    world.add(producer, A0)
    before, written = world.of(), len(world.log)
    many = tuple(TopicPartition("a", index) for index in range(1, 5_000))
    results = world.partitions(producer, many)
    assert set(results.values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    assert results.keys() == set(many)
    assert (world.of(), len(world.log)) == (before, written)
    assert "use fewer partitions" in world.log_lines[-1]
    # The client aborts, and the transaction that was possible goes on.
    assert code(world.end(producer, commit=False)) == ErrorCode.NONE


def test_a_transaction_of_100_000_partitions_fits_into_a_batch_of_the_default_size() -> None:
    world = World()
    producer = world.new_producer()
    many = tuple(TopicPartition("a", index) for index in range(100_000))
    assert set(world.partitions(producer, many).values()) == {ErrorCode.NONE}
    world.ended(producer)
    (markers,) = world.markers
    assert markers.partitions == many
    world.write_markers()
    assert world.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("topics", [0, 1, 7, 300])
@pytest.mark.parametrize("partitions", [1, 130])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_bound_of_a_record_holds_for_every_state(
    topics: int, partitions: int, version: int
) -> None:
    names = {f"täglich-{index}": tuple(range(partitions)) for index in range(topics)}
    ongoing = Transaction("ü" * 99, 2**63 - 1, 32766, 2**31 - 1, 2**63 - 1, S.ONGOING, 7, names)
    bound = least_batch_bytes("ü" * 99, names)
    for transaction in (
        ongoing,
        ongoing._replace(previous_producer_id=2**63 - 1, version=2),
        ongoing.ended(
            True, Producer(2**63 - 2, 0), version=2, marker_epoch=32767, wall_ms=2**63 - 1
        ),
        ongoing.kept(Producer(2**63 - 2, 5), last_epoch=3, wall_ms=2**63 - 1)._replace(version=2),
    ):
        written, _ = record(transaction, version)
        assert batch_bytes([written]) <= bound
    assert bound <= batch_bytes([written]) + 100 + 16 * topics, "the bound is not wasteful"
