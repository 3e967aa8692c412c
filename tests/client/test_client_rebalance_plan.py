"""The planner of a rebalance: what every plan keeps, and what the plans of typical clusters do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.rebalance.model import (
    TOLERANCE,
    BrokerView,
    ClusterView,
    Load,
    PartitionView,
    Plan,
    loads_of,
    rack_loads,
)
from penstock.client.rebalance.planner import plan_rebalance
from penstock.client.rebalance.targets import integer_range
from penstock.client.rebalance.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    Route,
    chunks_of_topics,
    topic_throttles,
)
from penstock.ids import TopicPartition
from penstock.limits import MAX_STRING_BYTES

MB = 1_000_000


def ring(
    brokers: int,
    partitions: int,
    factor: int,
    *,
    used: int | None = None,
    racks: int = 0,
    size: int = 10 * MB,
) -> ClusterView:
    """A cluster whose first `used` brokers have all replicas, in turn."""
    used = used or brokers
    views = tuple(
        BrokerView(broker, f"rack{broker % racks}" if racks else None)
        for broker in range(1, brokers + 1)
    )
    listed = []
    for number in range(partitions):
        replicas = tuple((number + step) % used + 1 for step in range(factor))
        listed.append(PartitionView(f"t{number % 5}", number // 5, replicas, replicas[0], size))
    return ClusterView(views, listed)


def applied(view: ClusterView, plan: Plan) -> ClusterView:
    """The cluster after the moves and the elections."""
    after = {move.partition: move.after for move in plan.moves}
    partitions = []
    for partition in view.partitions:
        replicas = after.get((partition.topic, partition.partition), partition.replicas)  # type: ignore[call-overload]  # a TopicPartition is a tuple
        partitions.append(partition._replace(replicas=replicas, leader=replicas[0]))
    return ClusterView(view.brokers, partitions)


def spread(view: ClusterView, replicas: tuple[int, ...]) -> int:
    racks = {broker.id: broker.rack or "" for broker in view.brokers}
    return len({racks.get(replica, "") for replica in replicas})


def assert_near(values: Collection[float], tolerance: float = TOLERANCE) -> None:
    mean = sum(values) / len(values)
    assert all(abs(value - mean) <= mean * tolerance for value in values), (mean, values)


def assert_balanced(loads: Mapping[int, Load], brokers: Collection[int]) -> None:
    for values in (
        [loads[broker].replicas for broker in brokers],
        [loads[broker].leaders for broker in brokers],
        [loads[broker].bytes for broker in brokers],
    ):
        assert_near(values)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    count = draw(st.integers(1, 9))
    racks = draw(st.sampled_from([0, 0, 1, 2, 3]))
    brokers = tuple(
        BrokerView(
            broker,
            f"rack{draw(st.integers(0, racks - 1))}" if racks else None,
            accepts=draw(st.sampled_from([True, True, True, False])),
        )
        for broker in range(count)
    )
    random = Random(draw(st.integers(0, 2**32)))
    used = draw(st.integers(1, count))
    largest = draw(st.sampled_from([0, 1, 10_000, 50 * MB]))
    partitions = []
    for number in range(draw(st.integers(0, 60))):
        replicas = tuple(random.sample(range(used), random.randint(1, min(used, 4))))
        leader = random.choice([*replicas, -1])
        size = random.randint(0, largest)
        partitions.append(PartitionView(f"t{number % 3}", number // 3, replicas, leader, size))
    return ClusterView(brokers, partitions)


@settings(max_examples=300, deadline=None)
@given(clusters(), st.sets(st.integers(0, 8), max_size=3), st.booleans())
def test_every_plan_keeps_the_rules(view: ClusterView, drain: set[int], balance: bool) -> None:
    plan = plan_rebalance(view, drain=drain, balance=balance)
    accepting = {broker.id for broker in view.brokers if broker.accepts} - drain
    before = {(partition.topic, partition.partition): partition for partition in view.partitions}
    for move in plan.moves:
        partition = before[move.partition.topic, move.partition.partition]
        assert move.before == partition.replicas
        assert move.after != move.before
        assert len(move.after) == len(move.before)
        assert len(set(move.after)) == len(move.after)
        assert set(move.adding) <= accepting
        if not drain & set(move.before):
            assert spread(view, move.after) >= spread(view, move.before)
        if not balance:
            assert drain & set(move.removing)
    after = applied(view, plan)
    assert plan.after == loads_of(view.brokers, after.partitions)
    assert plan.before == loads_of(view.brokers, view.partitions)
    stuck = [
        partition
        for partition in after.partitions
        if drain & set(partition.replicas) and accepting - set(partition.replicas)
    ]
    assert not stuck
    if any(drain & set(partition.replicas) for partition in after.partitions):
        assert plan.problems
    assert plan == plan_rebalance(view, drain=drain, balance=balance)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_second_plan_moves_little_or_nothing(view: ClusterView) -> None:
    """A plan that reached the balance is stable. Where it is out of reach, a second plan may find
    another step, but never undoes what the first one did for a worse balance."""
    first = plan_rebalance(view)
    after = applied(view, first)
    brokers = [broker.id for broker in view.brokers if broker.accepts]
    if not brokers:
        return
    for attribute in ("replicas", "leaders"):
        values = [getattr(first.after[broker], attribute) for broker in brokers]
        least, most = integer_range(sum(values) / len(values), TOLERANCE)
        if not all(least <= value <= most for value in values):
            return
    second = plan_rebalance(after, negligible_bytes=1 << 60)
    assert second.moves == ()


@settings(max_examples=60, deadline=None)
@given(
    brokers=st.integers(2, 12),
    used=st.integers(2, 12),
    drained=st.integers(0, 6),
    factor=st.integers(2, 3),
    seed=st.integers(0, 2**32),
    uneven=st.booleans(),
)
def test_replicas_leaders_and_bytes_are_near_the_mean(
    brokers: int, used: int, drained: int, factor: int, seed: int, uneven: bool
) -> None:
    used = min(used, brokers)
    drained = min(drained, brokers - factor)
    if drained < 0 or used < factor:
        return
    random = Random(seed)
    views = tuple(BrokerView(broker) for broker in range(brokers))
    partitions = []
    for number in range(60 * brokers):
        replicas = tuple(random.sample(range(used), factor))
        size = int(random.expovariate(1 / MB)) if uneven else MB
        partitions.append(PartitionView("t", number, replicas, replicas[0], size))
    drain = set(random.sample(range(brokers), drained))
    plan = plan_rebalance(ClusterView(views, partitions), drain=drain, negligible_bytes=0)
    assert_balanced(plan.after, set(range(brokers)) - drain)
    assert all(plan.after[broker] == Load() for broker in drain)
    assert plan.problems == ()


def test_a_balanced_cluster_is_left_alone() -> None:
    plan = plan_rebalance(ring(5, 500, 3))
    assert (plan.moves, plan.elections, plan.bytes) == ((), (), 0)
    assert plan.before == plan.after


def test_new_brokers_are_filled_and_no_replica_moves_between_old_ones() -> None:
    view = ring(10, 1_000, 3, used=3)
    plan = plan_rebalance(view)
    assert_balanced(plan.after, range(1, 11))
    assert all(set(move.adding) <= set(range(4, 11)) for move in plan.moves)
    # Seven tenths of all bytes is what an exact balance takes.
    assert plan.bytes <= 0.7 * 3_000 * 10 * MB


def test_a_drained_broker_gives_only_its_own_replicas() -> None:
    view = ring(5, 500, 3)
    plan = plan_rebalance(view, drain=[5], balance=False)
    assert plan.after[5] == Load()
    assert all(move.removing == (5,) for move in plan.moves)
    assert plan.replicas == 300
    assert_balanced(plan.after, range(1, 5))


def test_three_brokers_grow_to_fifty_and_shrink_to_four() -> None:
    view = ring(50, 2_000, 3, used=3)
    grown = plan_rebalance(view)
    assert_balanced(grown.after, range(1, 51))
    shrunk = plan_rebalance(applied(view, grown), drain=range(5, 51))
    assert_balanced(shrunk.after, range(1, 5))
    assert all(shrunk.after[broker] == Load() for broker in range(5, 51))


def test_racks_of_unequal_size_keep_one_replica_of_each_partition() -> None:
    """Rack a has one broker, b and c have two. Every partition stays in all three, so that a's
    broker has twice the replicas of the others, which are balanced among each other."""
    racks = {1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    brokers = tuple(BrokerView(broker, rack) for broker, rack in racks.items())
    partitions = [PartitionView("t", index, (1, 2, 4), 1, 10 * MB) for index in range(300)]
    view = ClusterView(brokers, partitions)
    plan = plan_rebalance(view)
    assert plan.after[1].replicas == 300
    assert_near([plan.after[broker].replicas for broker in (2, 3, 4, 5)])
    assert_near([plan.after[broker].leaders for broker in racks])
    assert all(spread(view, move.after) == 3 for move in plan.moves)
    assert {rack: load.replicas for rack, load in rack_loads(brokers, plan.after).items()} == {
        "a": 300,
        "b": 300,
        "c": 300,
    }


def test_bytes_are_balanced_by_swaps_when_the_replicas_already_are() -> None:
    brokers = (BrokerView(1), BrokerView(2))
    partitions = [
        PartitionView("t", index, (1 + index % 2,), 1 + index % 2, (30 - 20 * (index % 2)) * MB)
        for index in range(100)
    ]
    plan = plan_rebalance(ClusterView(brokers, partitions))
    assert_near([plan.after[broker].replicas for broker in (1, 2)])
    assert_near([plan.after[broker].bytes for broker in (1, 2)])
    assert {move.adding for move in plan.moves} == {(1,), (2,)}


def test_leaders_are_balanced_without_moving_a_byte() -> None:
    brokers = tuple(BrokerView(broker) for broker in (1, 2, 3))
    partitions = [PartitionView("t", index, (1, 2, 3), 1, MB) for index in range(99)]
    plan = plan_rebalance(ClusterView(brokers, partitions))
    assert plan.bytes == 0
    assert_near([plan.after[broker].leaders for broker in (1, 2, 3)])
    assert len(plan.elections) == len(plan.moves)


def test_leaders_pass_through_brokers_in_between() -> None:
    """Brokers 1 and 3 share no partition: 2 passes leaderships on."""
    brokers = tuple(BrokerView(broker) for broker in (1, 2, 3))
    partitions = [PartitionView("t", index, (1, 2), 1, 0) for index in range(60)]
    partitions += [PartitionView("u", index, (2, 3), 2, 0) for index in range(30)]
    # Keep the replicas where they are: with a factor of two, only the order may change.
    plan = plan_rebalance(ClusterView(brokers, partitions), tolerance=0.9)
    moved = {move.partition.topic for move in plan.moves if not move.adding}
    assert_near([plan.after[broker].leaders for broker in (1, 2, 3)], 0.9)
    assert moved == {"t", "u"}


def test_small_differences_of_bytes_are_ignored() -> None:
    brokers = (BrokerView(1), BrokerView(2))
    partitions = [
        PartitionView("t", 0, (1,), 1, 900_000),
        PartitionView("t", 1, (2,), 2, 10),
    ]
    assert plan_rebalance(ClusterView(brokers, partitions)).moves == ()


def test_a_cordoned_broker_is_left_alone_unless_it_is_drained() -> None:
    view = ring(4, 400, 2, used=4)
    cordoned = ClusterView(
        (*view.brokers[:3], view.brokers[3]._replace(accepts=False, state="cordoned")),
        view.partitions,
    )
    assert plan_rebalance(cordoned).moves == ()
    drained = plan_rebalance(cordoned, drain=[4])
    assert drained.after[4] == Load()


@pytest.mark.parametrize(("brokers", "factor"), [(3, 3), (1, 1)])
def test_a_drain_without_enough_brokers_says_so(brokers: int, factor: int) -> None:
    plan = plan_rebalance(ring(brokers, 10, factor), drain=[1])
    assert all(1 in move.after for move in plan.moves if 1 in move.before)
    assert plan.problems


def test_a_drain_of_a_whole_rack_gives_the_rack_up_and_says_so() -> None:
    brokers = tuple(
        BrokerView(broker, rack) for broker, rack in ((1, "a"), (2, "b"), (3, "b"), (4, "b"))
    )
    partitions = [PartitionView("t", index, (1, 2), 1, MB) for index in range(30)]
    plan = plan_rebalance(ClusterView(brokers, partitions), drain=[1])
    assert plan.after[1] == Load()
    assert "fewer racks" in plan.problems[0]
    assert plan.problems[-1] == "and 25 more"


def test_a_replica_of_an_unregistered_broker_is_drained_too() -> None:
    view = ClusterView((BrokerView(1), BrokerView(2)), [PartitionView("t", 0, (9, 1), 1, MB)])
    plan = plan_rebalance(view, drain=[9])
    assert sorted(plan.moves[0].after) == [1, 2]
    assert (plan.before[9].replicas, plan.after[9]) == (1, Load())


def skewed(brokers: int, partitions: int) -> ClusterView:
    """A cluster of which a fifth is new, with partitions of very different sizes."""
    random = Random(3)
    used = range(1, brokers * 4 // 5 + 1)
    listed = []
    for number in range(partitions):
        replicas = tuple(random.sample(used, 3))
        size = int(random.paretovariate(1.2) * 100_000)
        listed.append(PartitionView(f"t{number % 100}", number // 100, replicas, replicas[0], size))
    return ClusterView(tuple(BrokerView(broker) for broker in range(1, brokers + 1)), listed)


@pytest.mark.more
@pytest.mark.parametrize(
    "build",
    [
        lambda partitions: ring(10, partitions, 3, used=3),
        lambda partitions: skewed(100, partitions),
    ],
    ids=["3 to 10", "skewed"],
)
def test_a_hundred_thousand_partitions_are_planned_without_quadratic_work(
    build: Callable[[int], ClusterView],
) -> None:
    """The time grows with the number of partitions: about tenfold for ten times as many."""
    seconds = []
    for partitions in (10_000, 100_000):
        view = build(partitions)
        started = process_time()
        plan = plan_rebalance(view)
        seconds.append(process_time() - started)
        assert_near([plan.after[broker.id].replicas for broker in view.brokers])
        assert_near([plan.after[broker.id].leaders for broker in view.brokers])
    assert seconds[1] < 40 * seconds[0]


# Throttles


def test_the_throttle_of_a_topic_lists_the_sources_and_the_destinations() -> None:
    route = Route(frozenset({1, 2}), frozenset({2, 3}))
    assert topic_throttles({TopicPartition("t", 0): route}) == {
        "t": {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"}
    }


@pytest.mark.parametrize("count", [1_000, 2_000, 10_000])
def test_the_throttle_of_a_topic_is_a_string_of_the_protocol(count: int) -> None:
    """A list that is too long becomes `*`. Replicas that are in sync are not throttled anyway."""
    route = Route(frozenset({10, 11, 12}), frozenset({13}))
    config = topic_throttles({TopicPartition("t", index): route for index in range(count)})["t"]
    assert all(len(value) <= MAX_STRING_BYTES for value in config.values())
    assert (config[LEADER_REPLICAS] == "*") == (count > 1_000)
    assert (config[FOLLOWER_REPLICAS] == "*") == (count > 2_000)


def test_a_request_alters_the_throttles_of_topics_up_to_a_number_and_a_size() -> None:
    small = {f"t{number}": {LEADER_REPLICAS: "0:1"} for number in range(1_200)}
    assert [len(chunk) for chunk in chunks_of_topics(small)] == [500, 500, 200]
    large = {f"t{number}": {LEADER_REPLICAS: "x" * 30_000} for number in range(100)}
    chunks = chunks_of_topics(large)
    assert [name for chunk in chunks for name in chunk] == [*large]
    assert max(map(len, chunks)) <= 35
    cleared = {f"t{number}": {LEADER_REPLICAS: None} for number in range(2)}
    assert chunks_of_topics(cleared) == [["t0", "t1"]]
