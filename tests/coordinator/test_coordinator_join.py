"""JoinGroup of classic groups."""

from __future__ import annotations

import pytest

from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode
from tests.coordinator.group_world import GROUP, World, subscription


def test_a_new_member_first_gets_its_id() -> None:
    world = World()
    answer = world.joined(world.join(client="me"))
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "me-00000000-0000-0000-0000-000000000000"
    assert answer.protocol_name is None


def test_old_versions_get_no_null_protocol() -> None:
    world = World()
    assert world.joined(world.join(version=6)).protocol_name == ""


@pytest.mark.parametrize("version", [0, 3])
def test_old_versions_join_without_a_member_id(version: int) -> None:
    world = World()
    ticket = world.join(version=version)
    world.wait(3_000)
    assert world.joined(ticket).generation_id == 1


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout() -> None:
    world = World()
    world.join(version=0, session_ms=7_000, rebalance_ms=-1)
    assert world.group.rebalance_timeout_ms == 7_000


def test_a_pending_member_id_expires_with_its_session() -> None:
    world = World()
    member = world.member_id()
    world.wait(10_000)
    assert world.joined(world.join(member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_gets_the_list_of_members() -> None:
    world = World()
    first, second = world.member_id(), world.member_id()
    tickets = world.join(first), world.join(second)
    assert not world.replies.keys() & set(tickets)
    world.wait(6_000)
    leader, other = (world.joined(ticket) for ticket in tickets)
    assert leader.leader == other.leader == first
    assert [m.member_id for m in leader.members] == [first, second]
    assert leader.members[1].metadata == subscription("t")
    assert other.members == ()
    assert (leader.generation_id, leader.protocol_name, leader.protocol_type) == (
        1,
        "range",
        "consumer",
    )


def test_the_first_rebalance_waits_while_members_join() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=1_000))
    first, second = world.member_id(), world.member_id()
    ticket = world.join(first, rebalance_ms=10_000)
    world.wait(999)
    world.join(second, rebalance_ms=10_000)
    world.wait(1_000)
    assert ticket not in world.replies
    world.wait(1)
    assert len(world.joined(ticket).members) == 2


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=1_000))
    ticket = world.join(version=3, rebalance_ms=2_500)
    waited = 0
    while ticket not in world.replies:
        world.join(version=3, rebalance_ms=2_500)
        world.wait(500)
        waited += 500
    assert waited == 2_500


def test_without_a_delay_the_first_generation_begins_immediately() -> None:
    world = World(GroupSettings(initial_rebalance_delay_ms=0))
    ticket = world.join(version=3)
    world.wait(0)
    assert world.joined(ticket).generation_id == 1


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_range_is_refused(session_ms: int) -> None:
    world = World()
    assert (
        world.joined(world.join(session_ms=session_ms)).error_code
        == ErrorCode.INVALID_SESSION_TIMEOUT
    )


def test_an_empty_group_id_is_refused() -> None:
    world = World()
    assert world.joined(world.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_unknown_member_creates_no_group() -> None:
    world = World()
    assert world.joined(world.join("unknown")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.machine.list_groups() == []


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""}), ("consumer", {})],
)
def test_a_member_without_a_common_protocol_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    world = World()
    world.stable_group("a")
    answer = world.joined(world.join(protocol_type=protocol_type, protocols=protocols))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state_name == "Stable"


def test_a_member_without_protocols_is_refused() -> None:
    world = World()
    assert (
        world.joined(world.join(protocols={})).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert (
        world.joined(world.join(protocol_type="")).error_code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )


def test_members_vote_among_common_protocols() -> None:
    world = World()
    ticket = world.join(version=3, protocols={"own": b"", "range": b"1", "sticky": b"2"})
    world.join(version=3, protocols={"sticky": b"3", "range": b"4"})
    world.join(version=3, protocols={"sticky": b"5", "range": b"6"})
    world.wait(6_000)
    answer = world.joined(ticket)
    assert answer.protocol_name == "sticky"
    assert [m.metadata for m in answer.members] == [b"2", b"3", b"5"]


def test_a_full_classic_group_refuses_new_members() -> None:
    world = World(GroupSettings(max_size=2))
    members = world.stable_group("a", "b")
    assert world.joined(world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    # Members may always rejoin, and no new member takes their place meanwhile.
    world.join(members[0])
    ticket = world.join(members[1])
    assert world.joined(ticket).generation_id == 2


def test_a_loaded_group_beyond_the_maximum_size_rebalances() -> None:
    world = World()
    members = world.stable_group("a", "b")
    world.settings = GroupSettings(max_size=1)
    world.reload()
    assert world.beat(members[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(members[0])
    assert world.joined(world.join(members[1])).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_follower_that_retries_gets_the_same_response_without_a_rebalance() -> None:
    world = World()
    members = world.stable_group("a", "b")
    answer = world.joined(world.join(members[1]))
    assert (answer.generation_id, answer.leader, answer.members) == (1, members[0], ())
    assert world.group.state_name == "Stable"


def test_a_leader_that_rejoins_causes_a_rebalance() -> None:
    world = World()
    members = world.stable_group("a", "b")
    ticket = world.join(members[0])
    assert world.beat(members[1], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(members[1])
    assert world.joined(ticket).generation_id == 2


def test_a_member_that_changes_its_protocols_causes_a_rebalance() -> None:
    world = World()
    members = world.stable_group("a", "b")
    world.join(members[1], protocols={"range": subscription("u")})
    world.join(members[0])
    assert world.group.generation == 2
    assert world.group.subscribed_topics == frozenset({"t", "u"})


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    ticket = world.join(b, protocols={"range": subscription("u")}, rebalance_ms=5_000)
    for _ in range(60):
        world.beat(a, 1)
        world.wait(1_000)
    answer = world.joined(ticket)
    assert (answer.leader, answer.generation_id, len(answer.members)) == (b, 2, 1)
    assert world.beat(a, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_retried_join_replies_to_the_first_request_too() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    first, second = world.join(a), world.join(a)
    assert world.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(b)
    assert world.joined(second).generation_id == 2


def test_a_static_member_returns_without_a_rebalance() -> None:
    world = World()
    ticket = world.join(instance="i")
    world.wait(3_000)
    former = world.joined(ticket).member_id
    assert former.startswith("i-")
    world.sync(former, 1, {former: b"mine"}, instance="i")
    answer = world.joined(world.join(instance="i"))
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (
        1,
        answer.member_id,
        True,
    )
    assert [m.group_instance_id for m in answer.members] == ["i"]
    assert world.synced(world.sync(answer.member_id, 1, instance="i")).assignment == b"mine"
    assert world.beat(former, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert world.joined(world.join(former, instance="i")).error_code == ErrorCode.FENCED_INSTANCE_ID
    world.reload()
    assert world.beat(answer.member_id, 1, instance="i") == ErrorCode.NONE


def test_a_returning_static_leader_of_an_old_version_is_not_named_leader() -> None:
    world = World()
    ticket = world.join(instance="i", version=8)
    world.wait(3_000)
    former = world.joined(ticket).member_id
    world.sync(former, 1, {former: b"mine"}, instance="i")
    answer = world.joined(world.join(instance="i", version=8))
    assert (answer.leader, answer.members, answer.skip_assignment) == (former, (), False)


def test_a_replaced_static_members_request_gets_a_reply() -> None:
    world = World()
    ticket = world.join(instance="i")
    world.join(instance="i")
    assert world.joined(ticket).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_absent_static_member_stays_in_the_next_generation() -> None:
    world = World()
    tickets = [
        world.join(instance="i", session_ms=100_000),
        world.join(instance="j", session_ms=100_000),
    ]
    world.wait(6_000)
    i, j = (world.joined(ticket).member_id for ticket in tickets)
    world.sync(j, 1, instance="j")
    world.sync(i, 1, {i: b"1", j: b"2"}, instance="i")
    ticket = world.join(i, instance="i", protocols={"range": subscription("u")})
    world.wait(60_000)
    assert [m.group_instance_id for m in world.joined(ticket).members] == ["i", "j"]


def test_a_rebalance_logs_one_line() -> None:
    world = World()
    a, b = world.stable_group("a", "b")
    world.leave(b)
    ticket = world.join(a)
    world.sync(a, world.joined(ticket).generation_id)
    assert world.log_lines == [
        f"group {GROUP}: generation 1 is stable with 2 members after 6000 ms: "
        f"{a} joined; {b} joined",
        f"group {GROUP}: generation 2 is stable with 1 members after 0 ms: {b} left; {a} rejoined",
    ]
