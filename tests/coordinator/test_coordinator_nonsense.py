"""Requests that make no sense, in any order: each is answered or waits, none breaks a shard, and the log still says what the shard says."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.settings import GroupSettings
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.shards import World, topics

Act = Callable[[World], None]

group_ids = st.sampled_from(["g", "h", ""])
# Numbers stand for the ids that the shard has given out.
member_names = st.sampled_from(["", "0", "1", "2", "nobody"])
instances = st.sampled_from([None, "i", "j", ""])
numbers = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 1])
blobs = st.sampled_from([b"", b"\x00", b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\xff\xff"])
protocols = st.lists(st.builds(JoinGroupRequest.Protocol, name=st.sampled_from(["range", "sticky", ""]), metadata=blobs), max_size=3)


def _member(world: World, name: str) -> str:
    group = world.shard.groups.by_id.get("g")
    ids = [*getattr(group, "pending_ids", ()), *getattr(group, "members", ())]
    return ids[int(name) % len(ids)] if name.isdigit() and ids else name


@st.composite
def joins(draw: st.DrawFn) -> Act:
    group, name, instance = draw(group_ids), draw(member_names), draw(instances)
    wanted, kind = tuple(draw(protocols)), draw(st.sampled_from(["consumer", "connect", ""]))
    session_ms, rebalance_ms, version = draw(st.sampled_from([-1, 6_000, 10_000])), draw(numbers), draw(st.integers(0, 9))

    def act(world: World) -> None:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=_member(world, name),
            group_instance_id=instance,
            protocol_type=kind,
            protocols=wanted,
        )
        world.take(world.shard.join_group(request, world.caller(version), world.new_ticket(), world.now_ms))

    return act


@st.composite
def others(draw: st.DrawFn) -> Act:
    group, name, instance = draw(group_ids), draw(member_names), draw(instances)
    number, blob, version = draw(numbers), draw(blobs), draw(st.integers(2, 10))
    kind = draw(st.sampled_from(["sync", "beat", "leave", "commit", "delete"]))

    def act(world: World) -> None:
        member, ticket, now_ms = _member(world, name), world.new_ticket(), world.now_ms
        shard, caller = world.shard, world.caller(version)
        if kind == "sync":
            given_out = tuple(SyncGroupRequest.Assignment(member_id=_member(world, n), assignment=blob) for n in ("0", "1", "nobody"))
            wanted = SyncGroupRequest(
                group_id=group, generation_id=number, member_id=member, group_instance_id=instance, assignments=given_out
            )
            world.take(shard.sync_group(wanted, caller, ticket, now_ms))
        elif kind == "beat":
            beat = HeartbeatRequest(group_id=group, generation_id=number, member_id=member, group_instance_id=instance)
            world.take(shard.heartbeat(beat, caller, ticket, now_ms))
        elif kind == "leave":
            leaving = (LeaveGroupRequest.Member(member_id=member, group_instance_id=instance),) * 2
            world.take(shard.leave_group(LeaveGroupRequest(group_id=group, member_id=member, members=leaving), caller, ticket, now_ms))
        elif kind == "commit":
            partition = OffsetCommitRequest.Topic.Partition(partition_index=number, committed_offset=number, committed_metadata=None)
            commit = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=number,
                member_id=member,
                group_instance_id=instance,
                topics=(OffsetCommitRequest.Topic(name="t", topic_id=world.image.topics["t"].id, partitions=(partition,) * 2),),
            )
            world.take(shard.commit_offsets(commit, caller, ticket, now_ms))
        else:
            world.take(shard.delete_groups([group, group], ticket, now_ms))

    return act


waits = st.sampled_from([0, 1_000, 7_000, 400_000]).map(lambda ms: lambda world: world.wait(ms))
reloads = st.just(lambda world: world.reload())


@given(st.lists(st.one_of(joins(), joins(), others(), others(), waits, reloads), max_size=40), st.sampled_from([1, 2, 1_000]))
@settings(max_examples=150)
def test_nonsense_breaks_nothing(acts: list[Act], max_size: int) -> None:
    world = World(
        GroupSettings(max_size=max_size, initial_rebalance_delay_ms=1_000, offsets_retention_check_interval_ms=10**9), topics("t")
    )
    for act in acts:
        act(world)
    assert list(world.replayed().groups.offsets) == list(world.shard.groups.offsets)
    assert world.replayed().groups.by_id.keys() == world.shard.groups.by_id.keys()
    world.wait(2**31)
    assert len(world.answers) == next(world.tickets), "somebody was never answered"
