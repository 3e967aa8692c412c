"""Subscriptions by regular expression: matching, limits, and records."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import pytest

from penstock.coordinator.consumer import regex
from penstock.coordinator.consumer.regex import compiled, matching
from penstock.errors import ErrorCode, KafkaError
from tests.coordinator.consumer_world import ConsumerWorld
from tests.coordinator.group_world import GROUP


def test_an_expression_matches_whole_names() -> None:
    assert matching("t.*|u", ["t", "tea", "u", "up", "at"]) == {"t", "tea", "u"}


@pytest.mark.parametrize(
    "expression", ["(", "(?=a)b", r"(a)\1", "a{1001}", "x" * 1_001, "((a{10}){10}){10}b{100}"]
)
def test_malformed_and_oversized_expressions_are_refused(expression: str) -> None:
    with pytest.raises(KafkaError, match="is not a valid regular expression") as refused:
        compiled(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "expression",
    [
        "(a+)+b",
        "(a|aa)+b",
        "(.*a){20}b",
        "(a|b|c|d|e)*" * 40 + "z",
        "(a?){300}a{300}",
        "[ab]*a[ab]{240}",
    ],
)
def test_malicious_expressions_take_bounded_time(expression: str) -> None:
    names = ["ab" * 124] * 200
    began = perf_counter()
    with suppress(KafkaError):
        matching(expression, names)
    assert perf_counter() - began < 2


def test_an_expression_too_expensive_for_the_topics_is_refused() -> None:
    with pytest.raises(KafkaError, match="simplify the expression"):
        matching("[ab]*a[ab]{240}", ["ab" * 124] * 1_000)


def test_a_refused_expression_leaves_the_group_as_it_was() -> None:
    world = ConsumerWorld()
    assert world.consumer("a", regex="(").join().error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (world.log, GROUP in world.machine.groups.by_id) == ([], False)


def test_new_and_deleted_topics_change_the_matches() -> None:
    world = ConsumerWorld({"t1": 1, "u": 1})
    a = world.consumer("a", regex="t.*").join()
    assert len(a.owned) == 1
    world.change_topics({"t1": 1, "u": 1, "t2": 2})
    world.settle([a])
    assert len(a.owned) == 3
    assert world.consumers.regexes == {"t.*": frozenset({"t1", "t2"})}
    world.change_topics({"t2": 2, "u": 1})
    world.settle([a])
    assert len(a.owned) == 2
    assert world.consumers.regexes == {"t.*": frozenset({"t2"})}
    log = len(world.log)
    world.change_topics({"t2": 2, "u": 1, "v": 5})
    world.settle([a])
    assert len(world.log) == log


def test_an_unused_expression_is_deleted() -> None:
    world = ConsumerWorld()
    a, b = world.consumer("a", regex="t").join(), world.consumer("b", regex="t").join()
    a.leave()
    assert world.consumers.regexes.keys() == {"t"}
    b.leave()
    assert world.consumers.regexes == {}


def test_a_move_of_the_coordinator_writes_no_expressions_again() -> None:
    world = ConsumerWorld({"t1": 2})
    a = world.consumer("a", regex="t.*").join()
    log = len(world.log)
    world.reload()
    world.settle([a])
    assert (len(world.log), world.consumers.regexes) == (log, {"t.*": frozenset({"t1"})})


def test_an_expression_beyond_this_brokers_limits_keeps_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerWorld({"t1": 2})
    a = world.consumer("a", regex="t.+").join()
    world.reload()
    monkeypatch.setattr(regex, "MAX_REGEX_STEPS", 0)
    world.change_topics({"t1": 2, "t2": 2})
    world.settle([a])
    assert (a.error, len(a.owned)) == (ErrorCode.NONE, 2)
