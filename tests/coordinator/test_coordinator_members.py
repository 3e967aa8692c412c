"""SyncGroup, Heartbeat, LeaveGroup and timeouts of classic groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.coordinator.group_world import World


def begun(world: World, count: int = 2) -> list[str]:
    """Make a generation that has no assignment yet; return its member ids."""
    members = [world.member_id() for _ in range(count)]
    for member in members:
        world.join(member)
    world.wait(6_000)
    assert world.group.state_name == "CompletingRebalance"
    return members


def test_members_wait_for_the_leaders_assignment() -> None:
    world = World()
    a, b = begun(world)
    ticket = world.sync(b, 1)
    assert ticket not in world.replies
    own = world.sync(a, 1, {a: b"A", b: b"B"})
    assert (world.synced(own).assignment, world.synced(ticket).assignment) == (b"A", b"B")
    assert (world.synced(own).protocol_type, world.synced(own).protocol_name) == (
        "consumer",
        "range",
    )
    assert world.group.state_name == "Stable"


def test_a_late_sync_gets_the_assignment_immediately() -> None:
    world = World()
    a, b = begun(world)
    world.sync(a, 1, {a: b"A", b: b"B"})
    assert world.synced(world.sync(b, 1)).assignment == b"B"


def test_a_member_missing_from_the_assignment_gets_an_empty_one() -> None:
    world = World()
    a, b = begun(world)
    world.sync(a, 1, {a: b"A", "unknown": b"N"})
    assert world.synced(world.sync(b, 1)).assignment == b""


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_another_generation_is_refused(generation: int) -> None:
    world = World()
    (a,) = begun(world, 1)
    assert world.synced(world.sync(a, generation)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.beat(a, generation) == ErrorCode.ILLEGAL_GENERATION


def test_unknown_members_are_refused() -> None:
    world = World()
    assert world.synced(world.sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.stable_group("a")
    assert world.synced(world.sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync("x", 1, instance="i")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("x").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol", "protocol_type"), [("sticky", "consumer"), ("range", "connect")]
)
def test_a_sync_with_another_protocol_is_refused(protocol: str, protocol_type: str) -> None:
    world = World()
    (a,) = begun(world, 1)
    ticket = world.sync(a, 1, protocol=protocol, protocol_type=protocol_type)
    assert world.synced(ticket).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_waiting_syncs_are_refused_by_the_next_rebalance() -> None:
    world = World()
    a, b = begun(world)
    ticket = world.sync(b, 1)
    world.leave(a)
    assert world.synced(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.synced(world.sync(b, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(b, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_sync_of_a_member_that_leaves_gets_a_reply() -> None:
    world = World()
    _, b = begun(world)
    ticket = world.sync(b, 1)
    world.leave(b)
    assert world.synced(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_assigns_is_removed() -> None:
    world = World()
    a, b = begun(world)
    ticket = world.sync(b, 1)
    for _ in range(60):
        world.beat(a, 1)
        world.wait(1_000)
    assert world.synced(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.leader_id == b


def test_a_silent_member_is_removed_when_its_session_times_out() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    world.wait(9_999)
    assert world.beat(a, 1) == ErrorCode.NONE
    world.wait(1)
    assert world.beat(a, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(b, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_with_a_parked_join_needs_no_heartbeats() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    ticket = world.join(a)
    for _ in range(30):
        world.beat(b, 1)
        world.wait(1_000)
    world.join(b)
    assert world.joined(ticket).error_code == ErrorCode.NONE


def test_a_new_member_whose_client_disconnected_times_out() -> None:
    world = World()
    (a,) = world.stable_group("a")
    late = world.member_id()
    ticket = world.join(late, rebalance_ms=1_000_000)
    for _ in range(299):
        world.beat(a, 1)
        world.wait(1_000)
    assert ticket not in world.replies
    world.beat(a, 1)
    world.wait(1_000)
    assert world.joined(ticket).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group() -> None:
    world = World()
    (a,) = world.stable_group("a")
    assert world.leave(a).members[0].error_code == ErrorCode.NONE
    assert (world.group.state_name, world.group.generation, world.group.leader_id) == (
        "Empty",
        2,
        None,
    )
    world.reload()
    assert (world.group.state_name, world.group.generation, world.group.protocol_type) == (
        "Empty",
        2,
        "consumer",
    )


def test_many_members_leave_with_one_rebalance() -> None:
    world = World()
    a, b, c = world.stable_group("a", "b", "c")
    answer = world.leave(a, "x", b)
    assert [m.error_code for m in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert world.beat(c, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_old_version_removes_one_member() -> None:
    world = World()
    (a,) = world.stable_group("a")
    assert world.leave("x", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(a, version=2).error_code == ErrorCode.NONE
    assert world.group.is_empty


def test_an_administrator_removes_a_member_by_its_instance_id() -> None:
    world = World()
    ticket = world.join(instance="i")
    world.wait(3_000)
    member = world.joined(ticket).member_id
    assert world.leave("", instance="j").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("other", instance="i").members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.leave("", instance="i").members[0].error_code == ErrorCode.NONE
    assert world.beat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave() -> None:
    world = World()
    member = world.member_id()
    assert world.leave(member).members[0].error_code == ErrorCode.NONE
    assert world.leave(member).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_member_ids() -> None:
    world = World()
    (a,) = world.stable_group("a")
    pending = world.member_id()
    ticket = world.join(a)
    assert ticket not in world.replies
    world.leave(pending)
    assert world.joined(ticket).generation_id == 2


def test_after_loading_members_have_a_full_session() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    world.wait(9_000)
    world.reload()
    world.wait(9_000)
    assert world.beat(a, 1) == ErrorCode.NONE
    world.wait(1_000)
    assert world.beat(b, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_requests_are_refused_when_the_coordinator_moves() -> None:
    world = World()
    _, b = begun(world)
    syncing = world.sync(b, 1)
    world.reload()
    assert world.synced(syncing).error_code == ErrorCode.NOT_COORDINATOR
    joining = world.join(version=3)
    world.reload()
    assert world.joined(joining).error_code == ErrorCode.NOT_COORDINATOR


def test_a_rebalance_timeout_of_zero_empties_the_group() -> None:
    world = World()
    ticket = world.join(instance="i", rebalance_ms=0)
    world.wait(3_000)
    assert world.joined(ticket).generation_id == 1
    assert (world.group.state_name, world.group.generation) == ("Empty", 2)


def test_absent_static_members_stay_until_their_sessions_time_out() -> None:
    world = World()
    tickets = [world.join(instance=instance) for instance in ("i", "j")]
    world.wait(6_000)
    i, j = (world.joined(ticket).member_id for ticket in tickets)
    world.sync(j, 1, instance="j")
    world.sync(i, 1, {i: b"1", j: b"2"}, instance="i")
    world.group.put(replace(world.group.members[j], rebalance_timeout_ms=0))
    world.leave(i, instance="i")
    world.wait(9_000)
    assert (world.group.state_name, list(world.group.members)) == ("PreparingRebalance", [j])
    world.wait(1_000)
    assert world.group.is_empty


def test_an_empty_group_id_changes_nothing() -> None:
    world = World()
    caller, now = world.caller(5), world.now
    tickets = [world.new_ticket() for _ in range(3)]
    world.take(
        world.machine.heartbeat(
            HeartbeatRequest(group_id="", generation_id=1, member_id="x"), tickets[0], now
        )
    )
    world.take(
        world.machine.leave_group(
            LeaveGroupRequest(group_id="", member_id="x"), caller, tickets[1], now
        )
    )
    world.take(
        world.machine.sync_group(
            SyncGroupRequest(group_id="", generation_id=1, member_id="x"),
            caller,
            tickets[2],
            now,
        )
    )
    assert world.reply(tickets[0], HeartbeatResponse).error_code == ErrorCode.INVALID_GROUP_ID
    assert world.reply(tickets[1], LeaveGroupResponse).error_code == ErrorCode.INVALID_GROUP_ID
    assert world.reply(tickets[2], SyncGroupResponse).error_code == ErrorCode.INVALID_GROUP_ID
