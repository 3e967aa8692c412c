"""Records that max.message.bytes does not allow: the request that needs one is refused, alone. No
other member is refused or removed because a step of its group does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Never

import pytest

from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import GroupSettings
from penstock.coordinator.runtime.step import Step, batch_bytes
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from tests.coordinator.consumer_world import IMMEDIATE, ConsumerWorld
from tests.coordinator.group_world import GROUP, World

SMALL = replace(IMMEDIATE, max_batch_bytes=2_000)


class BoundedWorld(ConsumerWorld):
    """The runner would refuse a batch above the limit."""

    def take(self, step: Step[Never]) -> Step[Never]:
        assert batch_bytes(step.records) <= self.settings.max_batch_bytes
        return super().take(step)


def no_records(_step: GroupStep, key: object, _value: object) -> None:
    raise AssertionError(f"a record was made: {key}")


def test_an_oversized_subscription_is_refused_before_anything_is_made_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerWorld({"t": 1}, SMALL)
    monkeypatch.setattr(GroupStep, "write", no_records)
    joining = world.consumer("a", *(f"topic-{number}" for number in range(300)))
    with pytest.raises(KafkaError) as refused:
        joining.join()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert world.machine.groups.by_id == {}


def test_a_target_assignment_that_no_batch_can_hold_is_kept_back_and_members_stay() -> None:
    world = BoundedWorld({"t": 20}, SMALL)
    members = [world.consumer(f"member-{number:02}").join() for number in range(20)]
    world.settle(members)
    kept = world.consumers.target_epoch
    assert world.consumers.state_name == "Stable"
    world.change_topics({"t": 300})
    for _ in range(20):
        world.wait(5_000)
        assert {member.beat() for member in members} == {ErrorCode.NONE}
    assert kept == world.consumers.target_epoch < world.consumers.epoch
    lines = [line for line in world.log_lines if "keeps the assignment" in line]
    assert len(lines) == 1, "not one for each heartbeat"
    assert f"epoch {kept + 1} keeps the assignment of epoch {kept}" in lines[0]
    assert sorted(len(member.owned) for member in members) == [1] * 20
    response = world.send(members[-1].idle())
    assert response.heartbeat_interval_ms == 5_000, "members do not wait for an assignment"
    for member in members[3:]:
        member.leave()
    world.settle(members[:3])
    assert world.consumers.state_name == "Stable"
    assert sum(len(member.owned) for member in members) == 300


def test_a_target_assignment_that_fits_into_a_step_of_its_own_waits_for_it() -> None:
    settings = replace(SMALL, max_batch_bytes=3_500)
    world = BoundedWorld({"t": 40}, settings)
    members = [world.consumer(f"member-{number:02}") for number in range(10)]
    for member in members:
        member.join()
    topics = [f"a-topic-that-does-not-exist-{number:03}" for number in range(100)]
    large = world.consumer("large", "t", *topics)
    assert large.join().error is ErrorCode.NONE
    world.settle([*members, large])
    assert world.consumers.state_name == "Stable"
    assert large.owned


def test_an_expression_that_matches_too_many_topics_for_a_record_keeps_its_matches() -> None:
    world = BoundedWorld({"t0": 1}, SMALL)
    a, b = world.consumer("a", regex="t.*").join(), world.consumer("b", "t0").join()
    world.settle([a, b])
    topics = {f"t{number}": 1 for number in range(400)}
    world.change_topics(topics)
    world.settle([a, b])
    assert (a.error, b.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.consumers.regexes == {"t.*": frozenset({"t0"})}
    world.change_topics(dict.fromkeys(list(topics)[:20], 1))
    world.settle([a, b])
    assert world.consumers.regexes == {"t.*": frozenset(list(topics)[:20])}


def test_expressions_that_do_not_fit_into_one_step_are_matched_in_several() -> None:
    world = BoundedWorld({"t": 1}, replace(SMALL, max_batch_bytes=4_000))
    members = [
        world.consumer(f"member-{number}", regex=f"t|u.*{number}?").join() for number in range(9)
    ]
    world.settle(members)
    names = {"t", *(f"u-topic-{number:03}" for number in range(60))}
    world.change_topics(dict.fromkeys(sorted(names), 1))
    world.settle(members)
    assert set(world.consumers.regexes.values()) == {frozenset(names)}
    assert {member.error for member in members} == {ErrorCode.NONE}
    assert sum(len(member.owned) for member in members) == 61


def test_a_classic_member_that_no_generation_can_hold_is_refused_and_the_others_stay() -> None:
    world = World(GroupSettings(max_batch_bytes=2_000))
    first, second = world.stable_group("c1", "c2")
    joined = world.joined(world.join(protocols={"range": bytes(1_950)}))
    assert joined.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group.state_name == "Stable"
    assert {world.beat(member, 1) for member in (first, second)} == {ErrorCode.NONE}
    rejoined = world.joined(world.join(first, protocols={"range": bytes(1_950)}))
    assert rejoined.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert {world.beat(member, 1) for member in (first, second)} == {ErrorCode.NONE}


def test_an_oversized_commit_is_refused_before_its_records_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerWorld({"t": 10}, SMALL)
    monkeypatch.setattr(GroupStep, "write", no_records)
    partitions = tuple(
        OffsetCommitRequest.Topic.Partition(
            partition_index=index, committed_offset=5, committed_metadata="m" * 300
        )
        for index in range(10)
    )
    topics = (OffsetCommitRequest.Topic(name="t", partitions=partitions),)
    request = OffsetCommitRequest(group_id=GROUP, topics=topics)
    with pytest.raises(KafkaError) as refused:
        world.machine.offset_commit(request, world.caller(9), world.new_ticket(), world.now)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_oversized_deletion_of_offsets_is_refused_before_its_records_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerWorld({"t": 100}, SMALL)
    for index in range(100):
        world.commit(5, partition=index)

    def delete(count: int) -> Step[Never]:
        partitions = tuple(
            OffsetDeleteRequest.Topic.Partition(partition_index=index) for index in range(count)
        )
        topics = (OffsetDeleteRequest.Topic(name="t", partitions=partitions),)
        request = OffsetDeleteRequest(group_id=GROUP, topics=topics)
        return world.machine.offset_delete(request, world.new_ticket(), world.now)

    with monkeypatch.context() as patch:
        patch.setattr(GroupStep, "write", no_records)
        with pytest.raises(KafkaError) as refused:
            delete(100)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(delete(20).records) == 20


def test_a_higher_limit_lets_the_target_assignment_be_written() -> None:
    """The log line asks an operator for it, and the coordinator need not move."""
    world = BoundedWorld({"t": 20}, SMALL)
    members = [world.consumer(f"member-{number:02}").join() for number in range(20)]
    world.settle(members)
    world.change_topics({"t": 300})
    world.settle(members)
    assert world.consumers.state_name == "Assigning"
    world.settings = replace(SMALL, max_batch_bytes=20_000)
    world.take(world.change_image(replace(world.image, configs={(2, "__consumer_offsets"): {}})))
    world.settle(members)
    assert world.consumers.state_name == "Stable"
