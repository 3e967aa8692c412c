"""Arbitrary requests in any order: each gets a reply or waits, none breaks the machine, and the log
replays to the machine's state."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.groups.table import GroupSettings
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.group_world import World, topics

Act = Callable[[World], None]

# Valid values are more frequent, so that histories make progress.
NOW = 99
group_ids = st.sampled_from(["g"] * 8 + ["h", ""])
# Numbers stand for the member ids that the machine has assigned.
member_names = st.sampled_from(["", "", "0", "0", "1", "2", "unknown"])
instances = st.sampled_from([None] * 6 + ["i", "j", ""])
numbers = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 1])
blobs = st.sampled_from(
    [
        b"",
        b"\x00",
        b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\xff\xff",
    ]
)
names = st.sampled_from(["range"] * 4 + ["sticky", ""])
protocols = st.lists(st.builds(JoinGroupRequest.Protocol, name=names, metadata=blobs), max_size=3)


def _generation(world: World, number: int) -> int:
    return (
        getattr(world.machine.groups.by_id.get("g"), "generation", 0) if number == NOW else number
    )


def _member(world: World, name: str) -> str:
    group = world.machine.groups.by_id.get("g")
    ids = [*getattr(group, "pending_ids", ()), *getattr(group, "members", ())]
    return ids[int(name) % len(ids)] if name.isdigit() and ids else name


@st.composite
def joins(draw: st.DrawFn) -> Act:
    group, name, instance = draw(group_ids), draw(member_names), draw(instances)
    offered, kind = (
        tuple(draw(protocols)),
        draw(st.sampled_from(["consumer"] * 6 + ["connect", ""])),
    )
    session_ms, rebalance_ms = (
        draw(st.sampled_from([6_000, 10_000, 10_000, -1])),
        draw(st.one_of(st.just(10_000), numbers)),
    )
    version = draw(st.integers(0, 9))

    def act(world: World) -> None:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=_member(world, name),
            group_instance_id=instance,
            protocol_type=kind,
            protocols=offered,
        )
        ticket = world.new_ticket()
        world.run(
            lambda: world.machine.join_group(request, world.caller(version), ticket, world.now)
        )

    return act


@st.composite
def others(draw: st.DrawFn) -> Act:
    group, name, instance = draw(group_ids), draw(member_names), draw(instances)
    drawn, blob, version = (
        draw(st.one_of(st.just(NOW), numbers)),
        draw(blobs),
        draw(st.integers(2, 10)),
    )
    kind = draw(st.sampled_from(["sync", "beat", "leave", "commit", "delete"]))

    def act(world: World) -> None:
        member, ticket, now = _member(world, name), world.new_ticket(), world.now
        machine, caller, number = world.machine, world.caller(version), _generation(world, drawn)
        if kind == "sync":
            assignments = tuple(
                SyncGroupRequest.Assignment(member_id=_member(world, n), assignment=blob)
                for n in ("0", "1", "unknown")
            )
            sync = SyncGroupRequest(
                group_id=group,
                generation_id=number,
                member_id=member,
                group_instance_id=instance,
                assignments=assignments,
            )
            world.run(lambda: machine.sync_group(sync, caller, ticket, now))
        elif kind == "beat":
            beat = HeartbeatRequest(
                group_id=group, generation_id=number, member_id=member, group_instance_id=instance
            )
            world.run(lambda: machine.heartbeat(beat, ticket, now))
        elif kind == "leave":
            leaving = (LeaveGroupRequest.Member(member_id=member, group_instance_id=instance),) * 2
            world.take(
                machine.leave_group(
                    LeaveGroupRequest(group_id=group, member_id=member, members=leaving),
                    caller,
                    ticket,
                    now,
                )
            )
        elif kind == "commit":
            partition = OffsetCommitRequest.Topic.Partition(
                partition_index=number, committed_offset=number, committed_metadata=None
            )
            commit = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=number,
                member_id=member,
                group_instance_id=instance,
                topics=(
                    OffsetCommitRequest.Topic(
                        name="t", topic_id=world.image.topics["t"].id, partitions=(partition,) * 2
                    ),
                ),
            )
            world.run(lambda: machine.offset_commit(commit, caller, ticket, now))
        else:
            world.run(lambda: machine.delete_group(group, ticket, now))

    return act


waits = st.sampled_from([0, 1_000, 7_000, 400_000]).map(lambda ms: lambda world: world.wait(ms))
reloads = st.just(lambda world: world.reload())


@given(
    st.lists(
        st.one_of(joins(), joins(), others(), others(), waits, reloads), min_size=8, max_size=40
    ),
    st.sampled_from([2, 3, 1_000]),
)
@settings(max_examples=150)
def test_arbitrary_requests_break_nothing(acts: list[Act], max_size: int) -> None:
    limits = GroupSettings(
        max_size=max_size,
        initial_rebalance_delay_ms=1_000,
        offsets_retention_check_interval_ms=10**9,
    )
    world = World(limits, topics("t"))
    world.stable_group("a", "b")
    for act in acts:
        act(world)
    assert list(world.replayed().groups.offsets) == list(world.machine.groups.offsets)
    assert world.replayed().groups.by_id.keys() == world.machine.groups.by_id.keys()
    world.wait(2**31)
    assert len(world.replies) == len(world.tickets), "a request got no reply"


def test_a_protocol_named_twice_counts_once() -> None:
    world = World()
    named = JoinGroupRequest.Protocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=(named, named),
    )
    ticket = world.new_ticket()
    world.take(world.machine.join_group(request, world.caller(0), ticket, world.now))
    world.wait(3_000)
    assert world.joined(ticket).protocol_name == "range"
