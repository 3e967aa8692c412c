"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848). Invalid input leaves the group as it
was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from penstock.controller.decision import ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from tests.handlers.fake_node import FakeNode, answer, run
from tests.handlers.group_members import (
    GROUP,
    JOIN,
    SETTINGS,
    commit,
    committed,
    heartbeat,
    join_request,
    offsets_partition,
)

ALTER_CONFIGS, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 44, 68, 69
Test = Callable[[FakeNode, Any], Coroutine[Any, Any, None]]


async def beat(node: FakeNode, version: int = 1, **fields: Any) -> Any:
    return await answer(
        node,
        CONSUMER_HEARTBEAT,
        version,
        ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, "member_id": "me", **fields}),
    )


JOINING: dict[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ("orders",),
    "topic_partitions": (),
}


def with_member(test: Test, **settings: str) -> None:
    """Return the response of a member that is alone in its group and owns all partitions."""

    async def main(node: FakeNode) -> None:
        node.create("orders", 3)
        await offsets_partition(node)
        member = await beat(node, **JOINING)
        assert (member.error_code, member.member_epoch, member.member_id) == (
            ErrorCode.NONE,
            1,
            "me",
        )
        (assigned,) = member.assignment.topic_partitions
        assert assigned.partitions == (0, 1, 2)
        await test(node, member)

    run(main, **SETTINGS, **settings)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "unknown", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 7}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1, "server_assignor": "magic"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (
            {
                **JOINING,
                "member_id": "other",
                "subscribed_topic_regex": "(",
                "subscribed_topic_names": None,
            },
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ),
        (
            {**JOINING, "member_id": "other", "subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_an_invalid_heartbeat_is_refused_and_the_group_is_unaffected(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        assert (await beat(node, **fields)).error_code == code
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE
        assert (
            await commit(node, 5, generation_id_or_member_epoch=1, member_id="me") == ErrorCode.NONE
        )

    with_member(test)


def test_a_malicious_expression_is_refused_quickly() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        node.create("a" * 200)
        fields = {
            **JOINING,
            "member_id": "other",
            "subscribed_topic_names": None,
            "subscribed_topic_regex": "(a*)*(a|aa)+b",
        }
        assert (await beat(node, **fields)).error_code in (
            ErrorCode.NONE,
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        )
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE

    with_member(test)


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.STALE_MEMBER_EPOCH), (2, ErrorCode.STALE_MEMBER_EPOCH)]
)
def test_a_commit_of_another_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        assert (
            await commit(node, 5, generation_id_or_member_epoch=1, member_id="me") == ErrorCode.NONE
        )
        assert await commit(node, 9, generation_id_or_member_epoch=epoch, member_id="me") == code
        assert await committed(node) == (5, ErrorCode.NONE)

    with_member(test)


def test_a_member_that_left_is_unknown() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        left = await beat(node, member_epoch=-1)
        assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_member(test)


@pytest.mark.parametrize("version", range(2))
def test_groups_are_described(version: int) -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=(GROUP, "none", ""))
        known, unknown, empty = (await answer(node, CONSUMER_DESCRIBE, version, request)).groups
        assert (known.error_code, known.group_epoch, known.assignor_name, len(known.members)) == (
            0,
            1,
            "uniform",
            1,
        )
        assert known.members[0].client_host == "/10.0.0.2"
        assert (unknown.error_code, empty.error_code) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.INVALID_GROUP_ID,
        )

    with_member(test)


def test_another_brokers_group_is_not_coordinator() -> None:
    async def main(node: FakeNode) -> None:
        assert (await beat(node, **JOINING)).error_code == ErrorCode.NOT_COORDINATOR

    run(main, **SETTINGS)


async def set_for_group(node: FakeNode, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    change = resource(
        resource_type=32,
        resource_name=GROUP,
        configs=(resource.Config(name=name, config_operation=0, value=value),),
    )
    (altered,) = (
        await answer(node, ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(change,)))
    ).responses
    assert altered.error_code == ErrorCode.NONE


def test_a_shorter_session_timeout_counts_from_the_next_heartbeat() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        await set_for_group(node, "consumer.session.timeout.ms", "8000")
        await asyncio.sleep(10)
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE
        await asyncio.sleep(7)
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE
        await asyncio.sleep(9)
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_member(test, group_consumer_min_session_timeout_ms="8000")


def test_the_heartbeat_interval_of_the_group_config_is_used() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        assert (await beat(node, member_epoch=1)).heartbeat_interval_ms == 5_000
        await set_for_group(node, "consumer.heartbeat.interval.ms", "9000")
        assert (await beat(node, member_epoch=1)).heartbeat_interval_ms == 9_000

    with_member(test)


def test_with_group_version_0_consumer_groups_are_unsupported() -> None:
    """A cluster with older metadata has no group.version either; its members may use the classic
    protocol."""

    async def test(node: FakeNode, _member: Any) -> None:
        node.apply(
            lambda _image: ControllerResult(
                (FeatureLevelRecord(name="group.version", feature_level=0),), None
            )
        )
        refused = await beat(node, member_epoch=1)
        assert (refused.error_code, refused.assignment) == (ErrorCode.UNSUPPORTED_VERSION, None)
        assert "kafka-features.sh upgrade" in refused.error_message
        described = (
            await answer(
                node, CONSUMER_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=(GROUP, "none"))
            )
        ).groups
        assert [(group.group_id, group.error_code) for group in described] == [
            (GROUP, ErrorCode.UNSUPPORTED_VERSION),
            ("none", ErrorCode.UNSUPPORTED_VERSION),
        ]
        node.apply(
            lambda _image: ControllerResult(
                (FeatureLevelRecord(name="group.version", feature_level=1),), None
            )
        )
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE

    with_member(test)


def test_below_min_insync_a_heartbeat_that_changes_nothing_is_answered_and_keeps_the_session() -> (
    None
):
    async def test(node: FakeNode, _member: Any) -> None:
        partition = await offsets_partition(node)
        partition.leader.enough_in_sync = False
        for _ in range(20):
            await asyncio.sleep(5)
            assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE
        partition.leader.enough_in_sync = True
        await asyncio.sleep(5)
        assert (await beat(node, member_epoch=1)).error_code == ErrorCode.NONE

    with_member(test)


def test_below_min_insync_a_heartbeat_that_writes_is_refused_and_its_member_stays() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        partition = await offsets_partition(node)
        before = len(partition.batches)
        partition.leader.enough_in_sync = False
        for _ in range(20):
            await asyncio.sleep(5)
            refused = await beat(node, member_epoch=1, subscribed_topic_names=("more",))
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(partition.batches) == before
        partition.leader.enough_in_sync = True
        await asyncio.sleep(5)
        accepted = await beat(node, member_epoch=1, subscribed_topic_names=("more",))
        assert accepted.error_code == ErrorCode.NONE
        await asyncio.sleep(50)
        silent = await beat(node, member_epoch=accepted.member_epoch)
        assert silent.error_code == ErrorCode.UNKNOWN_MEMBER_ID, "sessions run again"

    with_member(test)


def test_below_min_insync_a_classic_heartbeat_that_writes_is_refused_and_its_member_stays() -> None:
    """In a group that migrates, a Heartbeat may be the first request after the assignment
    interval, and then writes the target assignment."""

    async def test(node: FakeNode, _member: Any) -> None:
        partition = await offsets_partition(node)
        subscribed = encode_consumer_protocol(ConsumerProtocolSubscription(topics=("orders",)))
        protocols = (JoinGroupRequest.Protocol(name="range", metadata=subscribed),)
        required = await answer(node, JOIN, 9, join_request(protocols=protocols))
        joining = join_request(required.member_id, protocols=protocols)
        classic = await answer(node, JOIN, 9, joining)
        assert classic.error_code == ErrorCode.NONE
        partition.leader.enough_in_sync = False
        partition.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")
        for _ in range(10):
            await asyncio.sleep(3)
            assert await heartbeat(node, classic) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.leader.enough_in_sync = True
        partition.refusal = None
        await asyncio.sleep(3)
        assert await heartbeat(node, classic) == ErrorCode.REBALANCE_IN_PROGRESS
        described = await answer(
            node, CONSUMER_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=(GROUP,))
        )
        assert {member.member_id for member in described.groups[0].members} == {
            "me",
            classic.member_id,
        }

    with_member(test)


@pytest.mark.parametrize("included", [True, False])
def test_described_groups_have_their_authorized_operations_on_request(included: bool) -> None:
    """READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: what a Kafka broker without an
    authorizer returns."""

    async def test(node: FakeNode, _member: Any) -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=(GROUP, "none"), include_authorized_operations=included
        )
        known, unknown = (await answer(node, CONSUMER_DESCRIBE, 1, request)).groups
        assert known.authorized_operations == (0b1101_0100_1000 if included else -(2**31))
        assert unknown.authorized_operations == -(2**31)

    with_member(test)


def test_a_change_of_max_message_bytes_of_the_offsets_topic_reaches_a_loaded_shard() -> None:
    async def test(node: FakeNode, _member: Any) -> None:
        partition = await offsets_partition(node)
        allowed = partition.config
        partition.config = replace(allowed, max_message_bytes=600)
        partition.leader_epoch += 1
        partition.tell()  # reloads the shard
        await asyncio.gather(*node.tasks)
        large: Any = {"member_epoch": 1, "subscribed_topic_names": ("orders", "x" * 700)}
        assert (await beat(node, **large)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        partition.config = allowed
        await set_for_group(node, "consumer.session.timeout.ms", "50000")
        assert (await beat(node, **large)).error_code == ErrorCode.NONE

    with_member(test)
