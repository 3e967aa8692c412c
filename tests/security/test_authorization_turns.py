"""Checks of many names take several turns of the event loop, with the answers of one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.handlers import describe_acls
from penstock.handlers.authorization import guard as guards
from penstock.handlers.authorization.guard import Pace
from penstock.handlers.authorization.guarded import guarded
from penstock.handlers.authorization.table import BROKER_CHECKS
from penstock.handlers.context import ConnectionHandle, Exclusive, RequestContext
from penstock.limits import AUTHORIZED_A_TURN, DESCRIBED_ACLS_A_TURN
from penstock.metadata.acls_delta import acl_record
from penstock.protocol.apis import response_class
from penstock.protocol.codec import encode_bytes, encode_struct
from penstock.protocol.messages.add_partitions_to_txn import Topic
from penstock.security.acls import AclOperation, PatternType, ResourceType
from tests.security.authorized_node import (
    ALICE,
    COMMIT,
    ROOT,
    AuthorizedNode,
    allow,
    request,
    run,
    topic,
)

COUNT = 4 * AUTHORIZED_A_TURN
# Every second name is allowed.
NAMES = [f"{'mine' if number % 2 else 'other'}-{number}" for number in range(COUNT)]
RIGHTS = [
    allow(AclOperation.ALL, resource_type, "mine-", pattern=PatternType.PREFIXED)
    for resource_type in (
        ResourceType.TOPIC,
        ResourceType.GROUP,
        ResourceType.TRANSACTIONAL_ID,
    )
]
GROUP = allow(AclOperation.ALL, ResourceType.GROUP, "g")


def topics(key: int, *path: str, **fields: Any) -> tuple[Any, ...]:
    name = fields.pop("name_field", "name")
    return tuple(topic(key, *path, **{name: each}, **fields) for each in NAMES)


def resources(key: int) -> tuple[Any, ...]:
    return topics(key, "Resource", name_field="resource_name", resource_type=2)


_offset = topic(2, "Topic", "Partition", partition_index=0, timestamp=-1)
_deleted = topic(21, "Topic", "Partition", partition_index=0, offset=0)
_epoch = topic(23, "Topic", "Partition", partition=0, leader_epoch=0)
_txn_commit = topic(28, "Topic", "Partition", partition_index=0, committed_offset=1)
_of_group = topic(9, "Group", group_id="g", topics=topics(9, "Group", "Topic"))

LARGE: list[tuple[int, int, Any]] = [
    (0, 9, request(0, acks=1, topic_data=topics(0, "TopicData"))),
    (2, 7, request(2, topics=topics(2, "Topic", partitions=(_offset,)))),
    (8, 8, request(8, group_id="g", topics=topics(8, "Topic", partitions=(COMMIT,)))),
    (9, 7, request(9, group_id="g", topics=topics(9, "Topic", partition_indexes=(0,)))),
    (9, 8, request(9, groups=(_of_group,))),
    (9, 9, request(9, groups=tuple(topic(9, "Group", group_id=name) for name in NAMES))),
    (10, 4, request(10, coordinator_keys=tuple(NAMES))),
    (15, 5, request(15, groups=tuple(NAMES))),
    (19, 5, request(19, topics=topics(19, "Topic"))),
    (20, 5, request(20, topic_names=tuple(NAMES))),
    (20, 6, request(20, topics=topics(20, "Topic"))),
    (21, 2, request(21, topics=topics(21, "Topic", partitions=(_deleted,)))),
    (23, 4, request(23, topics=topics(23, "Topic", name_field="topic", partitions=(_epoch,)))),
    (
        24,
        3,
        request(
            24,
            v3_and_below_transactional_id="mine-t",
            v3_and_below_topics=tuple(Topic(name=name, partitions=(0,)) for name in NAMES),
        ),
    ),
    (
        28,
        3,
        request(
            28,
            transactional_id="mine-t",
            group_id="g",
            topics=topics(28, "Topic", partitions=(_txn_commit,)),
        ),
    ),
    (32, 4, request(32, resources=resources(32))),
    (34, 2, request(34, dirs=(topic(34, "Dir", topics=topics(34, "Dir", "Topic")),))),
    (37, 3, request(37, topics=topics(37, "Topic"))),
    (42, 2, request(42, groups_names=tuple(NAMES))),
    (43, 2, request(43, topic_partitions=topics(43, "TopicPartition", name_field="topic"))),
    (44, 1, request(44, resources=resources(44))),
    (45, 0, request(45, topics=topics(45, "Topic"))),
    (47, 0, request(47, group_id="g", topics=topics(47, "Topic"))),
    (61, 0, request(61, topics=topics(61, "Topic", partition_indexes=(0,)))),
    (65, 0, request(65, transactional_ids=tuple(NAMES))),
    (69, 0, request(69, group_ids=tuple(NAMES))),
]


class Turns:
    """Counts the items that a check looks at in each turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._now = 0
        counted = Pace.is_over

        def is_over(pace: Pace) -> bool:
            self._now += 1
            self.most = max(self.most, self._now)
            return counted(pace)

        monkeypatch.setattr(Pace, "is_over", is_over)

    async def watch(self, response: Awaitable[Any]) -> Any:
        running = asyncio.ensure_future(_value(response))
        while not running.done():
            await asyncio.sleep(0)
            self._now = 0
        return running.result()


async def _value(response: Awaitable[Any]) -> Any:
    return await response


def answered(node: AuthorizedNode, key: int, version: int, asked: Any) -> tuple[Any, list[Any]]:
    """Return what a check returns, and the parts of the request that reach the handler."""
    executed: list[Any] = []

    def execute(_parts: object, part: Any, _context: object) -> object:
        executed.append(part)
        return response_class(key)()

    connection = ConnectionHandle()
    connection.principal = ALICE
    context = RequestContext(
        key, version, 7, "x", "PLAINTEXT", "a", 1, "10.0.0.2:1", 0.0, connection
    )
    load: Callable[[int], Any] = guarded(lambda _key: execute, node.authorizer, BROKER_CHECKS)
    return load(key)(node.parts, asked, context), executed


@pytest.mark.parametrize(
    ("key", "version", "asked"), LARGE, ids=[f"{key}-{version}" for key, version, _ in LARGE]
)
def test_a_large_request_is_checked_in_turns(
    key: int, version: int, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(*RIGHTS, GROUP)
        with monkeypatch.context() as patch:
            patch.setattr(guards, "AUTHORIZED_A_TURN", 10**9)
            at_once, executed_at_once = answered(node, key, version, asked)
        assert not isinstance(at_once, Awaitable)
        turns = Turns(monkeypatch)
        response, executed = answered(node, key, version, asked)
        assert isinstance(response, Exclusive), "the connection could send other requests ahead"
        assert executed == [], "the handler runs before the names are checked"
        assert await turns.watch(response) == at_once
        assert executed == executed_at_once
        assert turns.most <= AUTHORIZED_A_TURN
        encode_bytes(at_once, version)

    run(main)


@pytest.mark.parametrize(
    ("names", "with_records"),
    [(NAMES, lambda _name: True), ([*NAMES[0:494:2], "mine-1"], lambda name: name == "mine-1")],
    ids=["many topics", "topics without partitions, all but one denied"],
)
def test_a_large_produce_keeps_its_records_while_its_names_are_checked(
    names: list[str], with_records: Callable[[str], bool]
) -> None:
    """Other connections reuse the receive buffer between two turns."""

    async def main(node: AuthorizedNode) -> None:
        node.grant(*RIGHTS)
        buffer = bytearray(b"mine" * COUNT)
        sent = tuple(
            topic(
                0,
                "TopicData",
                name=name,
                partition_data=(
                    topic(
                        0,
                        "TopicData",
                        "PartitionData",
                        index=0,
                        records=memoryview(buffer)[4 * number : 4 * number + 4],
                    ),
                )
                if with_records(name)
                else (),
            )
            for number, name in enumerate(names)
        )
        response, executed = answered(node, 0, 9, request(0, acks=1, topic_data=sent))
        buffer[:] = b"late" * COUNT
        await response
        (produced,) = executed
        records = {data.records for each in produced.topic_data for data in each.partition_data}
        assert records == {b"mine"}

    run(main)


def test_the_entries_of_one_resource_are_encoded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4 * DESCRIBED_ACLS_A_TURN
    at_once: list[int] = []

    def encode(message: type, value: Any, version: int) -> bytes:
        at_once.append(len(acls) if isinstance(acls := getattr(value, "acls", ()), tuple) else 0)
        return encode_struct(message, value, version)

    async def main(node: AuthorizedNode) -> None:
        entries = [
            acl_record(
                UUID(int=number),
                allow(AclOperation.READ, ResourceType.TOPIC, "t", principal=f"User:{number}"),
            )
            for number in range(count)
        ]
        node.image = node.image.replay(entries, node.image.offset + 1)[0]
        monkeypatch.setattr(describe_acls, "encode_struct", encode)
        every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
        names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
        asked = request(29, permission_type=1, **every, **names)
        response = await node.answer(29, 3, asked, ROOT)
        assert [len(resource.acls) for resource in response.resources] == [count]
        assert max(at_once) <= DESCRIBED_ACLS_A_TURN

    run(main)


def test_a_client_that_is_denied_what_nodes_do_is_no_node() -> None:
    async def main(node: AuthorizedNode) -> None:
        connection = ConnectionHandle()
        connection.principal = ALICE
        context = RequestContext(27, 1, 7, "x", "PLAINTEXT", "a", 1, "10.0.0.2:1", 0.0, connection)
        guard = guards.Guard(node.authorizer, context)
        assert not guard.allows_cluster(AclOperation.CLUSTER_ACTION)
        assert connection.is_refused_node
        node.grant(allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER))
        assert guards.Guard(node.authorizer, context).allows_cluster(AclOperation.CLUSTER_ACTION)
        assert not connection.is_refused_node

    run(main)


def test_a_small_request_is_checked_at_once() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(*RIGHTS)
        part = request(2, topics=topics(2, "Topic", partitions=(_offset,))[:100])
        response, executed = answered(node, 2, 7, part)
        assert len(executed[0].topics) == 50
        assert [each.name for each in response.topics] == NAMES[:100:2]

    run(main)


def test_a_topic_with_many_partitions_is_refused_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(node: AuthorizedNode) -> None:
        partitions = tuple(
            topic(2, "Topic", "Partition", partition_index=index) for index in range(COUNT)
        )
        asked = request(2, topics=(topic(2, "Topic", name="t", partitions=partitions),))
        turns = Turns(monkeypatch)
        response, _executed = answered(node, 2, 7, asked)
        (refused,) = (await turns.watch(response)).topics
        assert len(refused.partitions) == COUNT
        assert turns.most <= AUTHORIZED_A_TURN

    run(main)
