"""What a client gets of requests that are allowed in part, and what it must not learn."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.authorization.guard import host_of
from penstock.handlers.context import Exclusive
from penstock.limits import AUTHORIZED_A_TURN
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from penstock.protocol.schema import changed
from penstock.security.acls import AclOperation, PatternType, PermissionType, ResourceType
from penstock.security.principals import KafkaPrincipal
from tests.handlers.fake_node import records
from tests.handlers.group_members import SETTINGS, offsets_partition
from tests.security.authorized_node import (
    ALICE,
    COMMIT,
    CREATION,
    FILTER,
    ROOT,
    AuthorizedNode,
    allow,
    denials,
    on_cluster,
    produced,
    request,
    run,
    topic,
)

Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
OPEN = {17, 18, 36}

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED = 29, 30, 31, 53


def test_produce_appends_what_is_allowed_and_refuses_the_rest() -> None:
    async def main(node: AuthorizedNode) -> None:
        (mine,), (other,) = node.create("mine"), node.create("other")
        node.grant(allow(Op.WRITE, TOPIC, "mine"))
        data = [
            topic(
                0,
                "TopicData",
                name=name,
                partition_data=(
                    topic(0, "TopicData", "PartitionData", index=0, records=records()),
                ),
            )
            for name in ("other", "mine", "absent")
        ]
        response = await node.answer(0, 9, request(0, acks=1, topic_data=tuple(data)))
        codes = {
            each.name: [part.error_code for part in each.partition_responses]
            for each in response.responses
        }
        assert codes == {"mine": [0], "other": [TOPIC_DENIED], "absent": [TOPIC_DENIED]}
        assert (mine.log_end_offset, other.log_end_offset) == (1, 0)

    run(main)


def test_produce_appends_nothing_to_a_topic_that_becomes_known_during_the_check() -> None:
    """The id is known to a client that may describe the topic on another broker. This one replays
    the topic while it checks the names of a large request."""

    async def main(node: AuthorizedNode) -> None:
        (partition,) = node.create("other")
        view = node.parts.metadata
        image = view.image
        topic_id = image.topics["other"].id
        node.grant(allow(Op.DESCRIBE, TOPIC, "other"))
        data = tuple(
            topic(
                0,
                "TopicData",
                topic_id=each,
                partition_data=(
                    topic(0, "TopicData", "PartitionData", index=0, records=records()),
                ),
            )
            for each in (topic_id, *(UUID(int=10**9 + n) for n in range(AUTHORIZED_A_TURN)))
        )
        view.image = replace(image, topics={}, topic_names={})
        waiting = node.call(0, 13, request(0, acks=1, topic_data=data))
        assert isinstance(waiting, Exclusive), "the check takes several turns"
        view.image = image
        response = await waiting
        codes = {
            partition.error_code
            for each in response.responses
            for partition in each.partition_responses
        }
        assert codes == {ErrorCode.UNKNOWN_TOPIC_ID}
        assert partition.log_end_offset == 0
        response = await node.answer(0, 13, request(0, acks=1, topic_data=data[:1]))
        assert denials(response) == {TOPIC_DENIED}

    run(main)


def test_produce_with_acks_0_closes_the_connection_if_it_is_refused() -> None:
    async def main(node: AuthorizedNode) -> None:
        (partition,) = node.create("t")
        asked = produced(records())
        asked = type(asked)(acks=0, topic_data=asked.topic_data)
        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
            node.call(0, 9, asked)
        assert partition.log_end_offset == 0

    run(main)


def test_a_transactional_produce_needs_write_on_the_transactional_id() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        node.grant(allow(Op.WRITE, TOPIC, "t"))
        data = records(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        response = await node.answer(0, 9, produced(data, transactional_id="x"))
        assert denials(response) == {TXN_DENIED}

    run(main)


def fetch(replica_id: int = -1, **fields: object) -> Any:
    partition = topic(1, "Topic", "Partition", partition=0, partition_max_bytes=1000)
    asked = topic(1, "Topic", topic="t", partitions=(partition,))
    return request(
        1,
        replica_id=replica_id,
        max_wait_ms=0,
        max_bytes=1000,
        topics=(asked,),
        session_epoch=0,
        **fields,
    )


def test_a_consumer_needs_read_also_during_its_session() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        node.grant(allow(Op.READ, TOPIC, "t"))
        response = await node.answer(1, 12, fetch())
        assert denials(response) == set()
        assert response.session_id
        node.grant(allow(Op.DESCRIBE, TOPIC, "t"))
        again = request(
            1,
            session_id=response.session_id,
            session_epoch=1,
            max_bytes=1000,
            max_wait_ms=0,
            topics=fetch().topics,
        )
        response = await node.answer(1, 12, again)
        assert denials(response) == {TOPIC_DENIED}

    run(main)


def test_a_topic_that_may_not_be_read_does_not_reveal_that_it_exists() -> None:
    async def main(node: AuthorizedNode) -> None:
        absent = await node.answer(1, 12, fetch())
        node.create("t")
        present = await node.answer(1, 12, fetch())
        assert denials(absent) == denials(present) == {TOPIC_DENIED}

    run(main)


def test_a_client_that_poses_as_a_replica_is_refused() -> None:
    """CVE-2018-1288: READ on all topics does not make a follower."""

    async def main(node: AuthorizedNode) -> None:
        (partition,) = node.create("t")
        node.grant(allow(Op.ALL, TOPIC, "*"))
        response = await node.answer(1, 12, fetch(replica_id=2))
        assert denials(response) == {TOPIC_DENIED}
        assert response.session_id == 0
        assert node.replicas.fetched_at == {}
        assert len(node.parts.fetches.sessions) == 0
        empty = request(1, replica_id=2, session_id=5, session_epoch=3)
        response = await node.answer(1, 12, empty)
        assert response.error_code == CLUSTER_DENIED
        node.grant(on_cluster(Op.CLUSTER_ACTION))
        assert denials(await node.answer(1, 12, fetch(replica_id=2))) == set()
        assert partition.log_end_offset == 0

    run(main)


def test_metadata_of_all_topics_has_those_that_may_be_described() -> None:
    async def main(node: AuthorizedNode) -> None:
        for name in ("a", "b", "c"):
            node.create(name)
        node.grant(allow(Op.READ, TOPIC, "b"))
        response = await node.answer(3, 9, request(3, topics=None))
        assert [each.name for each in response.topics] == ["b"]
        response = await node.answer(3, 9, request(3, topics=None), ROOT)
        assert [each.name for each in response.topics] == ["a", "b", "c"]
        response = await node.answer(75, 0, request(75, cursor=None))
        assert [each.name for each in response.topics] == ["b"]

    run(main)


def test_metadata_does_not_reveal_which_topics_exist() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("present")
        topics = tuple(topic(3, "Topic", name=name) for name in ("present", "absent"))
        for version in (4, 9, 12):
            response = await node.answer(
                3, version, request(3, topics=topics, allow_auto_topic_creation=True)
            )
            for each in response.topics:
                assert each.error_code == TOPIC_DENIED
                assert (each.topic_id.int, each.partitions, each.is_internal) == (0, (), False)
        assert "absent" not in node.image.topics
        by_id = topic(3, "Topic", name=None, topic_id=node.image.topics["present"].id)
        (found,) = (await node.answer(3, 12, request(3, topics=(by_id,)))).topics
        assert (found.error_code, found.name, found.partitions) == (TOPIC_DENIED, None, ())

    run(main)


def test_automatic_creation_needs_create() -> None:
    async def main(node: AuthorizedNode) -> None:
        asked = request(3, topics=(topic(3, "Topic", name="new"),), allow_auto_topic_creation=True)
        node.grant(allow(Op.DESCRIBE, TOPIC, "new"))
        assert denials(await node.answer(3, 9, asked)) == {TOPIC_DENIED}
        assert "new" not in node.image.topics
        node.grant(allow(Op.DESCRIBE, TOPIC, "new"), allow(Op.CREATE, TOPIC, "new"))
        assert denials(await node.answer(3, 9, asked)) == set()
        assert "new" in node.image.topics
        node.grant(on_cluster(Op.CREATE), allow(Op.DESCRIBE, TOPIC, "*"))
        other = request(3, topics=(topic(3, "Topic", name="other"),))
        assert denials(await node.answer(3, 9, other)) == set()
        assert "other" in node.image.topics

    run(main, **{"auto.create.topics.enable": "true"})


def bits(*operations: Op) -> int:
    return sum(1 << operation for operation in operations)


def test_authorized_operations_are_those_of_the_principal() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        node.create("u")
        node.grant(
            allow(Op.READ, TOPIC, "t"),
            allow(Op.ALL, TOPIC, "u"),
            allow(Op.DELETE, TOPIC, "u", permission=PermissionType.DENY),
            allow(Op.READ, GROUP, "g"),
            on_cluster(Op.DESCRIBE),
        )
        asked = request(
            3,
            topics=None,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        response = await node.answer(3, 9, asked)
        of_topics = {each.name: each.topic_authorized_operations for each in response.topics}
        every = bits(
            Op.READ,
            Op.WRITE,
            Op.CREATE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
        )
        assert of_topics == {"t": bits(Op.READ, Op.DESCRIBE), "u": every}
        assert response.cluster_authorized_operations == bits(Op.DESCRIBE)
        again = (await node.answer(3, 9, asked)).topics
        assert {each.name: each.topic_authorized_operations for each in again} == of_topics
        described = await node.answer(75, 0, request(75, cursor=None))
        assert {
            each.name: each.topic_authorized_operations for each in described.topics
        } == of_topics
        cluster = request(60, include_cluster_authorized_operations=True)
        assert (await node.answer(60, 0, cluster)).cluster_authorized_operations == bits(
            Op.DESCRIBE
        )
        node.grant()
        assert (await node.answer(60, 0, cluster)).cluster_authorized_operations == 0

    run(main)


def test_create_topics_hides_the_configs_of_a_new_topic() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.grant(allow(Op.CREATE, TOPIC, "mine"))
        topics = tuple(
            topic(19, "Topic", name=name, num_partitions=1, replication_factor=1)
            for name in ("mine", "other")
        )
        response = await node.answer(19, 7, request(19, topics=topics))
        found = {each.name: each for each in response.topics}
        assert found["other"].error_code == TOPIC_DENIED
        mine = found["mine"]
        assert (mine.error_code, mine.topic_config_error_code) == (0, TOPIC_DENIED)
        assert (mine.num_partitions, mine.replication_factor, mine.configs) == (-1, -1, ())
        assert set(node.image.topics) == {"mine"}

    run(main)


def test_delete_topics_reveals_names_only_to_those_who_may_describe() -> None:
    async def main(node: AuthorizedNode) -> None:
        for name in ("a", "b", "c"):
            node.create(name)
        ids = {name: found.id for name, found in node.image.topics.items()}
        node.grant(
            allow(Op.DESCRIBE, TOPIC, "a"),
            allow(Op.DESCRIBE, TOPIC, "absent"),
            allow(Op.DELETE, TOPIC, "c"),
        )
        topics = (
            *(topic(20, "Topic", name=None, topic_id=ids[name]) for name in ("a", "b", "c")),
            *(topic(20, "Topic", name=name) for name in ("absent", "other")),
        )
        response = await node.answer(20, 6, request(20, topics=topics))
        found = [(each.name, each.error_code) for each in response.responses]
        assert sorted(found, key=str) == sorted(
            [
                ("c", 0),
                ("a", TOPIC_DENIED),
                (None, TOPIC_DENIED),
                ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("other", TOPIC_DENIED),
            ],
            key=str,
        )
        assert set(node.image.topics) == {"a", "b"}

    run(main)


def test_add_partitions_adds_none_if_one_topic_is_refused() -> None:
    async def main(node: AuthorizedNode) -> None:
        for name in ("mine", "other"):
            node.create(name)
        from penstock.protocol.messages.add_partitions_to_txn import Topic

        asked = request(
            24,
            v3_and_below_transactional_id="x",
            v3_and_below_topics=tuple(
                Topic(name=name, partitions=(0,)) for name in ("mine", "other", "absent")
            ),
        )

        def codes(response: Any) -> dict[str, int]:
            return {
                each.name: each.results_by_partition[0].partition_error_code
                for each in response.results_by_topic_v3_and_below
            }

        node.grant(allow(Op.WRITE, TOPIC, "*"))
        assert set(codes(await node.answer(24, 3, asked)).values()) == {TXN_DENIED}
        node.grant(
            allow(Op.WRITE, TXN, "x"),
            allow(Op.WRITE, TOPIC, "mine"),
            allow(Op.WRITE, TOPIC, "absent"),
        )
        assert codes(await node.answer(24, 3, asked)) == {
            "mine": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "other": TOPIC_DENIED,
            "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        of_broker = await node.answer(24, 4, request(24))
        assert of_broker.error_code == CLUSTER_DENIED
        node.grant(on_cluster(Op.CLUSTER_ACTION))
        assert (await node.answer(24, 4, request(24))).error_code == 0

    run(main)


def commit(group_id: str, *names: str) -> Any:
    topics = tuple(topic(8, "Topic", name=name, partitions=(COMMIT,)) for name in names)
    return request(8, group_id=group_id, topics=topics)


def test_lists_of_groups_and_offsets_have_what_may_be_described() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        node.create("u")
        await offsets_partition(node)
        for group_id in ("g", "h"):
            assert denials(await node.answer(8, 7, commit(group_id, "t", "u"), ROOT)) == set()

        async def groups() -> list[str]:
            response = await node.answer(16, 4, request(16))
            assert response.error_code == 0
            return sorted(group.group_id for group in response.groups)

        assert await groups() == []
        node.grant(allow(Op.READ, GROUP, "h"), allow(Op.DESCRIBE, TOPIC, "u"))
        assert await groups() == ["h"]
        (old,) = (await node.answer(9, 7, request(9, group_id="h", topics=None))).topics
        assert old.name == "u"
        all_topics = topic(9, "Group", group_id="h", topics=None)
        for version in (8, 10):
            found = await node.answer(9, version, request(9, groups=(all_topics,)))
            (only,) = found.groups[0].topics
            assert only.name == "u" or only.topic_id == node.image.topics["u"].id
        node.grant(on_cluster(Op.DESCRIBE))
        assert await groups() == ["g", "h"]

    run(main, **SETTINGS)


def test_offsets_of_topic_ids_need_the_rights_on_their_names() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        await offsets_partition(node)
        known, unknown = node.image.topics["t"].id, UUID(int=77)
        by_id = [
            topic(8, "Topic", topic_id=each, partitions=(COMMIT,)) for each in (known, unknown)
        ]
        asked = request(8, group_id="g", topics=tuple(by_id))

        async def codes() -> dict[UUID, int]:
            response = await node.answer(8, 10, asked)
            return {each.topic_id: each.partitions[0].error_code for each in response.topics}

        node.grant(allow(Op.READ, GROUP, "g"))
        unknown_id = ErrorCode.UNKNOWN_TOPIC_ID
        assert await codes() == {known: TOPIC_DENIED, unknown: unknown_id}
        node.grant(allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "t"))
        assert await codes() == {known: 0, unknown: unknown_id}

    run(main, **SETTINGS)


def test_a_list_of_transactions_has_those_that_may_be_described() -> None:
    async def main(node: AuthorizedNode) -> None:
        for name in ("x", "y"):
            await node.answer(10, 4, request(10, coordinator_keys=(name,), key_type=1), ROOT)
            init = request(22, transactional_id=name, transaction_timeout_ms=1000)
            assert (await node.answer(22, 5, init, ROOT)).error_code == 0

        async def names(principal: KafkaPrincipal = ALICE) -> list[str]:
            response = await node.answer(66, 1, request(66), principal)
            assert response.error_code == 0
            return sorted(state.transactional_id for state in response.transaction_states)

        assert await names(ROOT) == ["x", "y"]
        assert await names() == []
        node.grant(allow(Op.WRITE, TXN, "y"))
        assert await names() == ["y"]

    run(
        main,
        **{
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        },
    )


def test_pages_of_topics_end_after_the_last_one() -> None:
    """The topic of the cursor was created again with fewer partitions, so that the page has none of
    it."""

    async def main(node: AuthorizedNode) -> None:
        for name in ("a", "b", "hidden", "c", "d"):
            node.create(name)
        node.grant(*(allow(Op.DESCRIBE, TOPIC, name) for name in "abcd"))
        found, cursor = [], topic(75, "Cursor", topic_name="a", partition_index=7)
        while cursor is not None:
            asked = request(75, response_partition_limit=2, cursor=cursor)
            response = await node.answer(75, 0, asked)
            found += [(each.name, len(each.partitions)) for each in response.topics]
            cursor = response.next_cursor
            if cursor is not None:
                cursor = topic(
                    75,
                    "Cursor",
                    topic_name=cursor.topic_name,
                    partition_index=cursor.partition_index,
                )
        assert found == [("a", 0), ("b", 1), ("c", 1), ("d", 1)]

    run(main)


def test_a_member_does_not_get_topics_that_it_may_not_describe() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("orders")
        node.create("orders-secret")
        await offsets_partition(node)
        node.grant(allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "orders"))
        beat = request(
            68,
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="orders.*",
            topic_partitions=(),
        )
        response = await node.answer(68, 1, beat)
        assert response.error_code == 0
        found = [each.topic_id for each in response.assignment.topic_partitions]
        assert found == [node.image.topics["orders"].id]
        # A member with other rights has the same expression.
        other = await node.answer(68, 1, changed(beat, member_id="root"), ROOT)
        assert [each.topic_id for each in other.assignment.topic_partitions] == [
            node.image.topics["orders-secret"].id
        ]
        described = await node.answer(69, 1, request(69, group_ids=("g",)))
        assert [group.error_code for group in described.groups] == [TOPIC_DENIED]
        assert described.groups[0].members == ()
        node.grant(allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "*"))
        described = await node.answer(69, 1, request(69, group_ids=("g",)))
        assert [group.error_code for group in described.groups] == [0]

    run(main, **SETTINGS, **{"group.consumer.assignment.interval.ms": "0"})


def test_a_classic_member_of_a_consumer_group_learns_of_no_other_topics() -> None:
    """The broker assigns its partitions. In a classic group the clients do."""

    async def main(node: AuthorizedNode) -> None:
        node.create("mine")
        node.create("secret", partitions=3)
        await offsets_partition(node)
        node.grant(allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "mine"))
        beat = request(
            68,
            group_id="g",
            member_id="root",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=("other",),
            topic_partitions=(),
        )
        assert (await node.answer(68, 1, beat, ROOT)).error_code == 0
        subscribed = ConsumerProtocolSubscription(topics=("mine", "secret", "absent"))
        member: dict[str, Any] = {"group_id": "g", "member_id": "", "protocol_type": "consumer"}
        for _ in range(2):
            protocol = topic(
                11, "Protocol", name="range", metadata=encode_consumer_protocol(subscribed)
            )
            asked = request(
                11,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocols=(protocol,),
                **member,
            )
            joined = await node.answer(11, 5, asked)
            member["member_id"] = joined.member_id
        asked = request(14, generation_id=joined.generation_id, protocol_name="range", **member)
        synced = await node.answer(14, 5, asked)
        assert synced.error_code == 0
        assert b"mine" in synced.assignment
        assert b"secret" not in synced.assignment

    run(main, **SETTINGS, **{"group.consumer.assignment.interval.ms": "0"})


def test_an_expression_gets_new_topics_and_those_that_are_granted_before_a_join() -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("orders")
        await offsets_partition(node)
        group = allow(Op.READ, GROUP, "g")
        node.grant(group, allow(Op.READ, TOPIC, "orders", pattern=PatternType.PREFIXED))
        beat = request(
            68,
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="orders.*|other",
            topic_partitions=(),
        )
        epoch = 0

        async def assigned(beat: Any) -> set[str]:
            nonlocal epoch
            response = await node.answer(68, 1, beat)
            epoch = response.member_epoch
            partitions = response.assignment.topic_partitions
            return {node.image.topic_names[each.topic_id] for each in partitions}

        assert await assigned(beat) == {"orders"}
        for name in ("other", "orders-2"):
            node.create(name)
        again = request(68, group_id="g", member_id="m", member_epoch=epoch)
        assert await assigned(again) == {"orders", "orders-2"}
        node.grant(group, allow(Op.READ, TOPIC, "*"))
        leaving = request(68, group_id="g", member_id="m", member_epoch=-1)
        assert (await node.answer(68, 1, leaving)).error_code == 0
        assert await assigned(beat) == {"orders", "orders-2", "other"}

    run(main, **SETTINGS, **{"group.consumer.assignment.interval.ms": "0"})


def test_an_expression_does_not_reveal_which_topics_exist() -> None:
    """Nor which ones are created: a group epoch goes up when a subscribed topic changes."""

    async def main(node: AuthorizedNode) -> None:
        node.create("secret-1")
        await offsets_partition(node)
        groups = {"hidden": "secret-.*", "absent": "nothing-.*"}
        node.grant(*(allow(Op.READ, GROUP, name) for name in groups))

        async def answers(group: str, epoch: int, **fields: Any) -> tuple[Any, list[Any]]:
            beat = request(68, group_id=group, member_id="m", member_epoch=epoch, **fields)
            response = await node.answer(68, 1, beat)
            described = await node.answer(69, 1, request(69, group_ids=(group,)))
            return response, [changed(each, group_id="") for each in described.groups]

        def without_expression(described: list[Any]) -> list[Any]:
            return [
                changed(
                    each,
                    members=tuple(
                        changed(member, subscribed_topic_regex=None) for member in each.members
                    ),
                )
                for each in described
            ]

        epochs = dict.fromkeys(groups, 0)
        for step in range(3):
            found = []
            for group, expression in groups.items():
                fields = {
                    "rebalance_timeout_ms": 1000,
                    "subscribed_topic_regex": expression,
                    "topic_partitions": (),
                }
                response, described = await answers(
                    group, epochs[group], **({} if step else fields)
                )
                assert response.error_code == 0
                epochs[group] = response.member_epoch
                found.append((response, without_expression(described)))
            assert found[0] == found[1]
            node.create(f"secret-{step + 2}")

    run(main, **SETTINGS)


def test_the_entries_are_created_described_and_deleted_through_the_apis() -> None:
    async def main(node: AuthorizedNode) -> None:
        every = request(
            29,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        created = await node.answer(30, 3, request(30, creations=(CREATION,)), ROOT)
        assert [each.error_code for each in created.results] == [0]
        described = await node.answer(29, 3, every, ROOT)
        (resource,) = described.resources
        assert (resource.resource_name, resource.acls[0].principal) == ("a", "User:x")
        unknown = type(every)(resource_type_filter=0)
        assert (await node.answer(29, 3, unknown, ROOT)).error_code == ErrorCode.INVALID_REQUEST
        all_of_them = topic(
            31,
            "Filter",
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = await node.answer(31, 3, request(31, filters=(all_of_them,)), ROOT)
        assert len(deleted.filter_results[0].matching_acls) == 1
        assert (await node.answer(29, 3, every, ROOT)).resources == ()

    run(main)


def test_the_apis_of_entries_are_disabled_without_an_authorizer() -> None:
    from tests.handlers.fake_node import FakeNode, answer
    from tests.handlers.fake_node import run as run_plain

    async def main(node: FakeNode) -> None:
        disabled = ErrorCode.SECURITY_DISABLED
        assert (await answer(node, 29, 3, request(29))).error_code == disabled
        created = await answer(node, 30, 3, request(30, creations=(CREATION,)))
        assert [each.error_code for each in created.results] == [disabled]
        deleted = await answer(node, 31, 3, request(31, filters=(FILTER,)))
        assert [each.error_code for each in deleted.filter_results] == [disabled]

    run_plain(main)


# The log


def test_a_denied_request_has_one_line_with_principal_and_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(node: AuthorizedNode) -> None:
        topics = tuple(topic(3, "Topic", name=name) for name in ("secret", "other\n"))
        with caplog.at_level(logging.INFO, "penstock.audit"):
            await node.answer(3, 9, request(3, topics=topics))
            await node.answer(3, 9, request(3, topics=None))
            await node.answer(16, 4, request(16))
        assert node.authorizer.denied == 2

    run(main)
    (line,) = caplog.messages
    assert "Metadata v9 of client 'test' ('User:alice') at 10.0.0.2:5000" in line
    assert "denied, since 'User:alice' from 10.0.0.2 may not DESCRIBE TOPIC 'secret'" in line


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.2:5000", "10.0.0.2"),
        ("::1:5000", "0:0:0:0:0:0:0:1"),
        ("[2001:db8::5]:5000", "2001:db8:0:0:0:0:0:5"),
        ("::ffff:10.0.0.2:5000", "10.0.0.2"),
        ("fe80::1%eth0:5000", "fe80:0:0:0:0:0:0:1"),
        ("unknown:0", "unknown"),
    ],
)
def test_hosts_are_written_as_java_writes_them(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_the_client_of_the_tests_is_no_super_user() -> None:
    assert str(ALICE) != str(ROOT)
