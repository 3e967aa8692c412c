"""ListGroups, DescribeGroups, and the records of classic groups as Kafka writes them."""

from __future__ import annotations

import pytest

from penstock.coordinator.groups.table import GroupSettings
from penstock.errors import ErrorCode
from penstock.protocol.internal.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.internal.coordinator_logs import GROUP_LOG
from tests.coordinator.group_world import GROUP, WALL_MS, World, subscription


def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    world.stable_group("a")
    world.commit(1, group="simple")
    listed = world.machine.list_groups()
    assert [(g.group_id, g.group_state, g.group_type, g.protocol_type) for g in listed] == [
        (GROUP, "Stable", "classic", "consumer"),
        ("simple", "Empty", "classic", ""),
    ]
    assert [g.group_id for g in world.machine.list_groups(["stable", "Dead"])] == [GROUP]
    assert [g.group_id for g in world.machine.list_groups(["EMPTY"], ["Classic"])] == ["simple"]
    assert world.machine.list_groups([], ["consumer"]) == []


def test_a_stable_group_is_described_with_assignments() -> None:
    world = World()
    (a,) = world.stable_group("a")
    described = world.machine.describe_group(GROUP)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (a, "c", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"a")


def test_a_group_in_a_rebalance_is_described_without_assignments() -> None:
    world = World()
    a, _ = world.stable_group("a", "b")
    world.join(a)
    described = world.machine.describe_group(GROUP)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {(m.member_metadata, m.member_assignment) for m in described.members} == {(b"", b"")}


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_missing_group_is_described_as_dead(version: int, code: ErrorCode) -> None:
    described = World().machine.describe_group("x", version)
    assert (described.group_state, described.error_code) == ("Dead", code)


def test_groups_are_written_in_kafkas_versions() -> None:
    world = World()
    (a,) = world.stable_group("a")
    world.commit(5, a, 1, metadata="m")
    world.commit(6, a, 1, version=10)
    world.commit(7, a, 1, version=4, retention_ms=1_000)
    keys = [GROUP_LOG.decode_key(record.key) for record in world.log]
    assert (
        keys
        == [GroupMetadataKey(group=GROUP)] * 2
        + [OffsetCommitKey(group=GROUP, topic="t", partition=0)] * 3
    )
    values = [record.value or b"" for record in world.log]
    assert [value[:2] for value in values] == [
        b"\x00\x03",
        b"\x00\x03",
        b"\x00\x03",
        b"\x00\x04",
        b"\x00\x01",
    ], "versions"
    decoded = [GROUP_LOG.decode_value(key, value) for key, value in zip(keys, values, strict=True)]
    assert decoded[0] == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=WALL_MS
    )
    assert decoded[1] == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=a,
        current_state_timestamp=world.wall_ms,
        members=(
            GroupMetadataValue.Member(
                member_id=a,
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=subscription("t"),
                assignment=b"a",
            ),
        ),
    )
    now = world.wall_ms
    assert decoded[2] == OffsetCommitValue(
        offset=5, leader_epoch=7, metadata="m", commit_timestamp=now
    )
    assert decoded[3] == OffsetCommitValue(
        offset=6,
        leader_epoch=7,
        metadata="",
        commit_timestamp=now,
        topic_id=world.image.topics["t"].id,
    )
    assert decoded[4] == OffsetCommitValue(
        offset=7, metadata="", commit_timestamp=now, expire_timestamp=now + 1_000
    )


def test_a_generation_too_large_for_the_log_rebalances_the_group() -> None:
    world = World(GroupSettings(max_batch_bytes=1_000))
    (a,) = world.stable_group("a")
    ticket = world.join(a)
    length = len(world.log)
    refused = world.sync(a, world.joined(ticket).generation_id, {a: bytes(2_000)})
    assert world.synced(refused).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(world.log), world.group.state_name) == (length, "PreparingRebalance")
    ticket = world.join(a)
    assert (
        world.synced(world.sync(a, world.joined(ticket).generation_id, {a: b"A"})).assignment
        == b"A"
    )


def test_pending_member_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.coordinator.classic.membership.MAX_PENDING_MEMBERS", 2)
    world = World()
    first, second, third = (world.member_id() for _ in range(3))
    assert list(world.group.pending_ids) == [second, third]
    assert world.joined(world.join(first)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_client_reasons_stay_on_one_log_line() -> None:
    world = World()
    a, b = world.stable_group("a", "b\nfake line")
    world.leave(b)
    ticket = world.join(a)
    world.sync(a, world.joined(ticket).generation_id)
    assert all(line.isprintable() for line in world.log_lines)
