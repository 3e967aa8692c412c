"""Replica placement: properties that hold for every cluster and seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.topics.replica_placer import place_replicas
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BrokerImage
from tests.controller.clusters import broker

seeds = st.integers(0, 2**128)


@st.composite
def clusters(draw: st.DrawFn) -> list[BrokerImage]:
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7))
    brokers = [
        broker(index, rack=rack, fenced=draw(st.booleans())) for index, rack in enumerate(racks)
    ]
    return [*brokers, broker(len(racks), rack=draw(st.sampled_from([None, "a", "d"])))]


@given(clusters(), seeds, st.data())
def test_replicas_are_distinct_and_fenced_brokers_never_lead(
    brokers: list[BrokerImage], seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    active = {broker.id for broker in brokers if not broker.fenced}
    placed = place_replicas(brokers, 20, factor, seed)
    assert len(placed) == 20
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in active


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), seeds, st.data())
def test_leaders_and_replicas_are_spread_evenly(
    racks: int, each: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    brokers = [broker(index, rack=str(index % racks)) for index in range(racks * each)]
    factor = data.draw(st.integers(1, racks * each))
    placed = place_replicas(brokers, partitions, factor, seed)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.id] for broker in brokers]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 4), st.integers(1, 3), seeds, st.data())
def test_replicas_alternate_between_racks(
    racks: int, each: int, seed: int, data: st.DataObject
) -> None:
    brokers = [broker(index, rack=str(index % racks)) for index in range(racks * each)]
    factor = data.draw(st.integers(1, racks * each))
    for replicas in place_replicas(brokers, 10, factor, seed):
        held = Counter(index % racks for index in replicas)
        assert max(held.values()) <= -(-factor // racks)


racks_of_brokers = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def racked(sizes: list[int]) -> list[BrokerImage]:
    """Return brokers in racks of these sizes."""
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    return [broker(index, rack=str(rack)) for index, rack in enumerate(racks)]


@given(racks_of_brokers, st.integers(1, 30), seeds, st.data())
def test_no_rack_has_two_replicas_while_another_has_a_free_broker(
    sizes: list[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    brokers = racked(sizes)
    rack_of = {broker.id: int(broker.rack or "") for broker in brokers}
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in place_replicas(brokers, partitions, factor, seed):
        held = Counter(rack_of[replica] for replica in replicas)
        most = max(held.values())
        assert all(held[rack] >= min(most - 1, size) for rack, size in enumerate(sizes))


@given(racks_of_brokers, seeds)
def test_leaders_rotate_over_racks_and_over_the_brokers_of_each(
    sizes: list[int], seed: int
) -> None:
    brokers = racked(sizes)
    rack_of = {broker.id: int(broker.rack or "") for broker in brokers}
    leaders = [replicas[0] for replicas in place_replicas(brokers, len(brokers), 1, seed)]
    by_rack = Counter(rack_of[leader] for leader in leaders)
    assert max(by_rack.values()) - min(by_rack[rack] for rack in range(len(sizes))) <= 1
    for rack, size in enumerate(sizes):
        each = Counter(leader for leader in leaders if rack_of[leader] == rack)
        assert max(each.values(), default=0) <= -(-by_rack[rack] // size)


@given(seeds)
def test_three_racks_have_one_of_three_replicas_each_and_lead_a_third(seed: int) -> None:
    """So the loss of a rack costs each partition at most one replica."""
    brokers = racked([1, 1, 1])
    placed = place_replicas(brokers, 3, 3, seed)
    assert {replicas[0] for replicas in placed} == {0, 1, 2}
    assert all(set(replicas) == {0, 1, 2} for replicas in placed)


@given(clusters(), seeds)
def test_same_seed_gives_the_same_assignment(brokers: list[BrokerImage], seed: int) -> None:
    assert place_replicas(brokers, 9, 1, seed) == place_replicas(reversed(brokers), 9, 1, seed)


@pytest.mark.parametrize("racks", [1, 6])
def test_followers_of_one_leader_vary(racks: int) -> None:
    brokers = [broker(index, rack=str(index % racks)) for index in range(6)]
    followers = {replicas[1] for replicas in place_replicas(brokers, 60, 2, 1) if replicas[0] == 0}
    assert len(followers) >= 3


def test_single_broker_gets_all_replicas() -> None:
    assert place_replicas([broker(1)], 3, 1, 7) == [(1,), (1,), (1,)]


def test_shutting_down_and_cordoned_brokers_get_no_replicas() -> None:
    cordoned = BrokerImage(
        3,
        1,
        broker(3).incarnation_id,
        fenced=False,
        directories=broker(3).directories,
        cordoned_directories=broker(3).directories,
    )
    assert place_replicas([broker(1), broker(2, shutting_down=True), cordoned], 2, 1, 7) == [
        (1,),
        (1,),
    ]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (0, "Invalid replication factor 0: the replication factor must be positive."),
        (
            3,
            "The target replication factor of 3 cannot be reached because only 2 broker\\(s\\) "
            "are registered or some brokers have all "
            "their log directories cordoned.",
        ),
    ],
)
def test_unreachable_replication_factors(factor: int, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        place_replicas([broker(1), broker(2)], 1, factor, 7)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
