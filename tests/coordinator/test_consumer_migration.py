"""Upgrade and downgrade of a live group between the classic and the consumer protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.coordinator.classic.group import ClassicGroup
from penstock.errors import ErrorCode
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    encode_consumer_protocol,
)
from tests.coordinator.classic_client import ClassicConsumer, kind
from tests.coordinator.consumer_world import IMMEDIATE, Consumer, ConsumerWorld, TopicPartitions
from tests.coordinator.group_world import GROUP, subscription


def classic_world(
    count: int = 2, policy: str = "bidirectional"
) -> tuple[ConsumerWorld, list[ClassicConsumer]]:
    """Make a stable classic group whose leader assigned two partitions to each member."""
    world = ConsumerWorld({"t": 6}, replace(IMMEDIATE, consumer_migration_policy=policy))
    clients = [ClassicConsumer(world, f"c{number}") for number in range(count)]
    for client in clients:
        client.run()
        client.run()
    world.wait(6_000)
    leader = world.joined(
        next(client.joining for client in clients if client.joining is not None)
    ).leader
    for client in clients:
        assert client.joining is not None
        client.id, client.generation = world.joined(client.joining).member_id, 1
        client.joining = None
    shares = {client.id: share(number) for number, client in enumerate(clients)}
    for client in sorted(clients, key=lambda client: client.id == leader):
        client.syncing = world.sync(client.id, 1, shares if client.id == leader else None)
    for client in clients:
        client.run()
    assert [len(client.owned) for client in clients] == [2] * count
    return world, clients


def share(number: int) -> bytes:
    mine = ConsumerProtocolAssignment.AssignedPartition(
        topic="t", partitions=(2 * number, 2 * number + 1)
    )
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=(mine,)))


def settle(world: ConsumerWorld, *members: ClassicConsumer | Consumer, rounds: int = 12) -> None:
    for _ in range(rounds):
        world.wait(100)
        for member in members:
            if isinstance(member, ClassicConsumer):
                member.run()
            else:
                member.beat()


def everything(world: ConsumerWorld) -> TopicPartitions:
    return frozenset(
        (topic.id, partition)
        for topic in world.image.topics.values()
        for partition in topic.partitions
    )


def test_the_first_member_of_the_consumer_protocol_upgrades_the_group() -> None:
    world, (c0, c1) = classic_world()
    world.commit(7, c0.id, 1)
    had = c0.owned
    new = world.consumer("new").join()
    assert (new.error, kind(world), world.committed()) == (ErrorCode.NONE, "consumer", 7)
    assert new.owned == {(world.image.topics["t"].id, 4), (world.image.topics["t"].id, 5)}, (
        "partitions without an owner are free immediately"
    )
    settle(world, c0, c1, new)
    assert [len(member.owned) for member in (c0, c1, new)] == [2, 2, 2]
    assert c0.owned == had
    assert c0.owned | c1.owned | new.owned == everything(world)
    assert world.consumers.state_name == "Stable"
    assert world.beat(c0.id, c0.generation) is ErrorCode.NONE


def test_the_group_is_downgraded_when_the_last_member_of_the_consumer_protocol_leaves() -> None:
    world, (c0, c1) = classic_world()
    new = world.consumer("new").join()
    settle(world, c0, c1, new)
    epoch = world.consumers.epoch
    new.leave()
    assert kind(world) == "classic"
    group = world.machine.groups.by_id[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.generation) == ("PreparingRebalance", epoch)
    assert {member.id for member in group.members.values()} == {c0.id, c1.id}
    settle(world, c0, c1)
    assert group.state_name == "Stable"
    assert group.generation == epoch + 1
    assert any(
        "was downgraded from the consumer to the classic protocol" in line
        for line in world.log_lines
    )


def test_members_migrate_one_by_one_in_both_directions() -> None:
    world, (c0, c1) = classic_world()
    n0 = world.consumer("n0").join()
    settle(world, c0, c1, n0)
    c0.leave()
    n1 = world.consumer("n1").join()
    settle(world, c1, n0, n1)
    assert c1.owned | n0.owned | n1.owned == everything(world)
    c1.leave()
    settle(world, n0, n1)
    assert (kind(world), [len(n0.owned), len(n1.owned)]) == ("consumer", [3, 3])
    assert all(member.classic is None for member in world.consumers.members.values())


def test_a_classic_member_joins_a_consumer_group() -> None:
    world = ConsumerWorld({"t": 6})
    new, classic = world.consumer("new").join(), ClassicConsumer(world, "c")
    settle(world, classic, new)
    assert (len(classic.owned), len(new.owned)) == (3, 3)
    assert classic.owned | new.owned == everything(world)
    assert world.leave("new").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    classic.leave()
    settle(world, new)
    assert len(new.owned) == 6


def test_a_static_member_changes_its_protocol() -> None:
    world = ConsumerWorld({"t": 6})
    other, new = world.consumer("other").join(), world.consumer("new", instance="i").join()
    world.settle([other, new])
    had = new.owned
    classic = ClassicConsumer(world, "c", instance="i")
    settle(world, classic, other, rounds=4)
    assert (classic.owned, kind(world)) == (had, "consumer")
    new.id = "newer"
    new.full = world.consumer("newer", instance="i").full
    new.join()
    assert (new.error, new.owned) == (ErrorCode.NONE, had)
    assert world.beat(classic.id, classic.generation, "i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_downgrade_by_the_last_static_member_needs_no_rebalance() -> None:
    world = ConsumerWorld({"t": 6})
    new = world.consumer("new", instance="i").join()
    had, epoch = new.owned, world.consumers.epoch
    classic = ClassicConsumer(world, "c", instance="i")
    classic.run()
    classic.run()
    group = world.machine.groups.by_id[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.generation) == ("Stable", epoch)
    assert (classic.owned, classic.generation) == (had, epoch)


@pytest.mark.parametrize(
    ("policy", "code"),
    [("disabled", ErrorCode.GROUP_ID_NOT_FOUND), ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_the_migration_policy_may_forbid_the_upgrade(policy: str, code: ErrorCode) -> None:
    world, (c0, c1) = classic_world(policy=policy)
    assert world.consumer("new").join().error is code
    settle(world, c0, c1)
    assert (kind(world), [len(c0.owned), len(c1.owned)]) == ("classic", [2, 2])


def test_the_migration_policy_may_forbid_the_downgrade() -> None:
    world, (c0, c1) = classic_world(policy="UPGRADE")
    new = world.consumer("new").join()
    settle(world, c0, c1, new)
    new.leave()
    settle(world, c0, c1)
    assert (kind(world), [len(c0.owned), len(c1.owned)]) == ("consumer", [3, 3])
    world.change_topics({"t": 8})
    settle(world, c0, c1)
    assert [len(c0.owned), len(c1.owned)] == [4, 4]


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    world = ConsumerWorld({"t": 6})
    world.join(version=3, protocols={"p": b"\x01"}, protocol_type="connect")
    assert world.consumer("new").join().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_malformed_subscriptions_is_not_upgraded() -> None:
    world = ConsumerWorld({"t": 6})
    world.join(version=3, protocols={"range": b"\x00"})
    log = len(world.log)
    assert world.consumer("new").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (kind(world), len(world.log)) == ("classic", log)


def test_an_upgrade_makes_members_that_wait_for_a_rebalance_rejoin() -> None:
    world = ConsumerWorld({"t": 6})
    ticket = world.join(version=3)
    world.consumer("new").join()
    assert world.joined(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_group_changes_its_type() -> None:
    world = ConsumerWorld({"t": 6})
    new = world.consumer("new").join()
    new.leave()
    world.join(version=3)
    assert kind(world) == "classic"
    world.wait(600_000)
    assert new.join().error is ErrorCode.NONE
    assert (kind(world), len(new.owned)) == ("consumer", 6)
    world.reload()
    assert kind(world) == "consumer"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": subscription("t")}), ("consumer", {}), ("consumer", {"range": b""})],
)
def test_a_classic_member_of_another_protocol_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    world = ConsumerWorld({"t": 6})
    world.consumer("new").join()
    answer = world.joined(world.join(version=3, protocol_type=protocol_type, protocols=protocols))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_requests_are_fenced_by_epochs() -> None:
    world = ConsumerWorld({"t": 6})
    new, classic = world.consumer("new").join(), ClassicConsumer(world, "c")
    settle(world, classic, new)
    assert world.beat(classic.id, classic.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.beat("new", new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        world.synced(world.sync(classic.id, classic.generation, protocol="range")).error_code
        == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert world.commit(5, classic.id, classic.generation) is ErrorCode.NONE
    assert world.commit(6, classic.id, classic.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.committed() == 5


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    world, (c0, c1) = classic_world()
    new = world.consumer("new").join()
    for _ in range(14):
        world.wait(5_000)
        world.beat(c0.id, 1)
        c1.run()
        new.beat()
    assert c0.id not in world.consumers.members
    assert c1.owned | new.owned == everything(world)


def test_a_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    world = ConsumerWorld({"t": 6})
    new = world.consumer("new").join()
    joined = world.joined(world.join(version=3, session_ms=300_000))
    for _ in range(12):
        world.wait(5_000)
        new.beat()
    assert joined.member_id not in world.consumers.members


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_migrated_group_survives_a_move_of_the_coordinator(goes_back: bool) -> None:
    world, (c0, c1) = classic_world()
    new = world.consumer("new").join()
    settle(world, c0, c1, new)
    if goes_back:
        new.leave()
    before = kind(world)
    world.reload()
    assert kind(world) == before
    settle(world, c0, c1, *([] if goes_back else [new]))
    assert world.beat(c0.id, c0.generation) is ErrorCode.NONE


@pytest.mark.parametrize("leaves", [True, False])
def test_a_downgrade_that_no_batch_can_hold_leaves_classic_members_in_a_consumer_group(
    leaves: bool,
) -> None:
    """Otherwise the last member of the consumer protocol could never leave, nor be removed."""
    world, (c0, c1) = classic_world()
    new = world.consumer("new").join()
    settle(world, c0, c1, new)
    world.settings = replace(world.settings, max_batch_bytes=700)
    world.machine.groups.settings = world.settings
    if leaves:
        assert new.leave() is ErrorCode.NONE
    else:
        for _ in range(10):
            world.wait(5_000)
            c0.run()
            c1.run()
    settle(world, c0, c1)
    assert (kind(world), set(world.consumers.members)) == ("consumer", {c0.id, c1.id})
    assert c0.owned | c1.owned == everything(world)
