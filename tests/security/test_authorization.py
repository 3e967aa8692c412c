"""Every API needs the rights of Kafka's table: with all of them it is answered, and without one of
them it is refused with Kafka's error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from penstock.errors import InvariantBroken, ProtocolError
from penstock.handlers import CONTROLLER_SERVED, SERVED, TWO_PHASE_COMMIT_SERVED
from penstock.handlers.authorization.calls import Call
from penstock.handlers.authorization.guard import Guard
from penstock.handlers.authorization.guarded import guarded
from penstock.handlers.authorization.table import BROKER_CHECKS, CONTROLLER_CHECKS, entry_of
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.handlers.turns import run as run_check
from penstock.protocol.apis import find_api, response_class
from penstock.protocol.codec import encode
from penstock.security.acls import Acl, AclOperation, PermissionType, ResourceType
from tests.handlers.fake_node import records
from tests.handlers.group_members import SETTINGS, offsets_partition
from tests.security.authorized_node import (
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
OPEN = {17, 18, 36, 39, 40}

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED = 29, 30, 31, 53


class Case(NamedTuple):
    """A request that needs all of `needed`. Without one of them the response has `errors` of the
    same position, or the single one."""

    key: int
    version: int
    request: Any
    needed: Sequence[Acl]
    errors: Sequence[int]
    # Other sets of rights that are enough as well.
    also_enough: Sequence[Sequence[Acl]] = ()


def config(key: int, kind: int, name: str) -> Any:
    resource = topic(
        key,
        "Resource",
        resource_type=kind,
        resource_name=name,
        **({"configuration_keys": None} if key == 32 else {}),
    )
    return request(key, resources=(resource,))


_offset = topic(2, "Topic", "Partition", partition_index=0, timestamp=-1)
_txn_commit = topic(28, "Topic", "Partition", partition_index=0, committed_offset=1)
_deleted = topic(21, "Topic", "Partition", partition_index=0, offset=0)
_epoch = topic(23, "Topic", "Partition", partition=0, leader_epoch=0)
_offset_deletion = topic(47, "Topic", "Partition", partition_index=0)
_marker = topic(
    27,
    "Marker",
    producer_id=5,
    topics=(topic(27, "Marker", "Topic", name="t", partition_indexes=(0,)),),
)
_move = topic(34, "Dir", path="/a", topics=(topic(34, "Dir", "Topic", name="t", partitions=(0,)),))
_quota = topic(
    49, "Entry", entity=(topic(49, "Entry", "Entity", entity_type="user", entity_name="u"),)
)

WHOLE_CLUSTER = {
    29: (Op.DESCRIBE, request(29, resource_type_filter=1, operation=1, permission_type=1)),
    30: (Op.ALTER, request(30, creations=(CREATION,))),
    31: (Op.ALTER, request(31, filters=(FILTER,))),
    34: (Op.ALTER, request(34, dirs=(_move,))),
    35: (Op.DESCRIBE, request(35, topics=None)),
    43: (Op.ALTER, request(43, topic_partitions=None)),
    45: (Op.ALTER, request(45)),
    46: (Op.DESCRIBE, request(46, topics=None)),
    48: (Op.DESCRIBE_CONFIGS, request(48)),
    49: (Op.ALTER_CONFIGS, request(49, entries=(_quota,))),
    # Apache Kafka does not answer a denied request without names.
    50: (Op.DESCRIBE, request(50, users=(topic(50, "User", name="u"),))),
    51: (Op.ALTER, request(51, deletions=(topic(51, "Deletion", name="u", mechanism=1),))),
    55: (Op.DESCRIBE, request(55)),
    57: (Op.ALTER, request(57)),
    64: (Op.ALTER, request(64, broker_id=99)),
    74: (Op.DESCRIBE_CONFIGS, request(74)),
    80: (Op.ALTER, request(80)),
    81: (Op.ALTER, request(81)),
}

CASES = [
    *(
        Case(key, SERVED[key].last, asked, [on_cluster(operation)], [CLUSTER_DENIED])
        for key, (operation, asked) in WHOLE_CLUSTER.items()
    ),
    Case(0, 9, produced(records()), [allow(Op.WRITE, TOPIC, "t")], [TOPIC_DENIED]),
    Case(
        2,
        7,
        request(2, topics=(topic(2, "Topic", name="t", partitions=(_offset,)),)),
        [allow(Op.DESCRIBE, TOPIC, "t")],
        [TOPIC_DENIED],
        [[allow(Op.READ, TOPIC, "t")], [allow(Op.ALTER, TOPIC, "t")]],
    ),
    Case(
        3,
        9,
        request(3, topics=(topic(3, "Topic", name="t"),), allow_auto_topic_creation=False),
        [allow(Op.DESCRIBE, TOPIC, "t")],
        [TOPIC_DENIED],
        [[allow(Op.WRITE, TOPIC, "t")]],
    ),
    Case(
        8,
        7,
        request(8, group_id="g", topics=(topic(8, "Topic", name="t", partitions=(COMMIT,)),)),
        [allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "t")],
        [GROUP_DENIED, TOPIC_DENIED],
    ),
    *(
        Case(
            9,
            version,
            request(9, group_id="g", topics=(topic(9, "Topic", name="t", partition_indexes=(0,)),)),
            [allow(Op.DESCRIBE, GROUP, "g"), allow(Op.DESCRIBE, TOPIC, "t")],
            [GROUP_DENIED, TOPIC_DENIED],
            [[allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "t")]],
        )
        for version in (1, 2, 7)
    ),
    Case(
        9,
        9,
        request(
            9,
            groups=(
                topic(
                    9,
                    "Group",
                    group_id="g",
                    topics=(topic(9, "Group", "Topic", name="t", partition_indexes=(0,)),),
                ),
            ),
        ),
        [allow(Op.DESCRIBE, GROUP, "g"), allow(Op.DESCRIBE, TOPIC, "t")],
        [GROUP_DENIED, TOPIC_DENIED],
    ),
    Case(10, 3, request(10, key="g", key_type=0), [allow(Op.DESCRIBE, GROUP, "g")], [GROUP_DENIED]),
    Case(
        10,
        4,
        request(10, coordinator_keys=("x",), key_type=1),
        [allow(Op.DESCRIBE, TXN, "x")],
        [TXN_DENIED],
        [[allow(Op.WRITE, TXN, "x")]],
    ),
    Case(
        10,
        6,
        request(10, coordinator_keys=("g:t:0",), key_type=2),
        [on_cluster(Op.CLUSTER_ACTION)],
        [CLUSTER_DENIED],
    ),
    *(
        Case(11, version, request(11, group_id="g"), [allow(Op.READ, GROUP, "g")], [GROUP_DENIED])
        for version in (3, 7)
    ),
    *(
        Case(key, 3, request(key, group_id="g"), [allow(Op.READ, GROUP, "g")], [GROUP_DENIED])
        for key in (12, 13, 14)
    ),
    Case(15, 5, request(15, groups=("g",)), [allow(Op.DESCRIBE, GROUP, "g")], [GROUP_DENIED]),
    Case(
        19,
        7,
        request(
            19,
            topics=(topic(19, "Topic", name="new", num_partitions=1, replication_factor=1),),
            validate_only=True,
        ),
        [allow(Op.CREATE, TOPIC, "new"), allow(Op.DESCRIBE_CONFIGS, TOPIC, "new")],
        [TOPIC_DENIED, TOPIC_DENIED],
        [[on_cluster(Op.CREATE), allow(Op.ALTER_CONFIGS, TOPIC, "new")]],
    ),
    Case(
        20,
        5,
        request(20, topic_names=("t",), timeout_ms=10_000),
        [allow(Op.DELETE, TOPIC, "t")],
        [TOPIC_DENIED],
    ),
    Case(
        20,
        6,
        request(20, topics=(topic(20, "Topic", name="t"),), timeout_ms=10_000),
        [allow(Op.DELETE, TOPIC, "t")],
        [TOPIC_DENIED],
    ),
    Case(
        21,
        2,
        request(21, topics=(topic(21, "Topic", name="t", partitions=(_deleted,)),)),
        [allow(Op.DELETE, TOPIC, "t")],
        [TOPIC_DENIED],
    ),
    Case(
        22,
        5,
        request(22, transactional_id=None),
        [on_cluster(Op.IDEMPOTENT_WRITE)],
        [CLUSTER_DENIED],
        [[allow(Op.WRITE, TOPIC, "any")]],
    ),
    Case(
        22,
        5,
        request(22, transactional_id="x", transaction_timeout_ms=1000),
        [allow(Op.WRITE, TXN, "x")],
        [TXN_DENIED],
    ),
    Case(
        22,
        6,
        request(22, transactional_id="x", transaction_timeout_ms=1000, enable2_pc=True),
        [allow(Op.WRITE, TXN, "x"), allow(Op.TWO_PHASE_COMMIT, TXN, "x")],
        [TXN_DENIED, TXN_DENIED],
    ),
    Case(
        23,
        4,
        request(23, topics=(topic(23, "Topic", topic="t", partitions=(_epoch,)),)),
        [allow(Op.DESCRIBE, TOPIC, "t")],
        [TOPIC_DENIED],
        [[on_cluster(Op.CLUSTER_ACTION)]],
    ),
    Case(
        25,
        3,
        request(25, transactional_id="x", group_id="g"),
        [allow(Op.WRITE, TXN, "x"), allow(Op.READ, GROUP, "g")],
        [TXN_DENIED, GROUP_DENIED],
    ),
    Case(26, 4, request(26, transactional_id="x"), [allow(Op.WRITE, TXN, "x")], [TXN_DENIED]),
    Case(
        27,
        1,
        request(27, markers=(_marker,)),
        [on_cluster(Op.CLUSTER_ACTION)],
        [CLUSTER_DENIED],
        [[on_cluster(Op.ALTER)]],
    ),
    Case(
        28,
        4,
        request(
            28,
            transactional_id="x",
            group_id="g",
            topics=(topic(28, "Topic", name="t", partitions=(_txn_commit,)),),
        ),
        [allow(Op.WRITE, TXN, "x"), allow(Op.READ, GROUP, "g"), allow(Op.READ, TOPIC, "t")],
        [TXN_DENIED, GROUP_DENIED, TOPIC_DENIED],
    ),
    Case(
        32,
        4,
        config(32, 2, "t"),
        [allow(Op.DESCRIBE_CONFIGS, TOPIC, "t")],
        [TOPIC_DENIED],
        [[allow(Op.ALTER_CONFIGS, TOPIC, "t")]],
    ),
    Case(32, 4, config(32, 4, "1"), [on_cluster(Op.DESCRIBE_CONFIGS)], [CLUSTER_DENIED]),
    Case(32, 4, config(32, 8, "1"), [on_cluster(Op.DESCRIBE_CONFIGS)], [CLUSTER_DENIED]),
    Case(32, 4, config(32, 32, "g"), [allow(Op.DESCRIBE_CONFIGS, GROUP, "g")], [GROUP_DENIED]),
    *(
        case
        for key in (33, 44)
        for case in (
            Case(
                key, 1, config(key, 2, "t"), [allow(Op.ALTER_CONFIGS, TOPIC, "t")], [TOPIC_DENIED]
            ),
            Case(key, 1, config(key, 4, "1"), [on_cluster(Op.ALTER_CONFIGS)], [CLUSTER_DENIED]),
            Case(
                key, 1, config(key, 32, "g"), [allow(Op.ALTER_CONFIGS, GROUP, "g")], [GROUP_DENIED]
            ),
        )
    ),
    Case(44, 1, config(44, 8, "1"), [on_cluster(Op.ALTER_CONFIGS)], [CLUSTER_DENIED]),
    Case(
        37,
        3,
        request(37, topics=(topic(37, "Topic", name="t", count=2, assignments=None),)),
        [allow(Op.ALTER, TOPIC, "t")],
        [TOPIC_DENIED],
    ),
    Case(42, 2, request(42, groups_names=("g",)), [allow(Op.DELETE, GROUP, "g")], [GROUP_DENIED]),
    Case(
        43,
        0,
        request(43, topic_partitions=(topic(43, "TopicPartition", topic="t", partitions=(0,)),)),
        [on_cluster(Op.ALTER)],
        [CLUSTER_DENIED],
    ),
    Case(
        47,
        0,
        request(
            47, group_id="g", topics=(topic(47, "Topic", name="t", partitions=(_offset_deletion,)),)
        ),
        [allow(Op.DELETE, GROUP, "g"), allow(Op.READ, TOPIC, "t")],
        [GROUP_DENIED, TOPIC_DENIED],
    ),
    Case(
        61,
        0,
        request(61, topics=(topic(61, "Topic", name="absent", partition_indexes=(0,)),)),
        [allow(Op.READ, TOPIC, "absent")],
        [TOPIC_DENIED],
    ),
    Case(
        65, 0, request(65, transactional_ids=("x",)), [allow(Op.DESCRIBE, TXN, "x")], [TXN_DENIED]
    ),
    Case(
        68,
        1,
        request(
            68,
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        ),
        [allow(Op.READ, GROUP, "g"), allow(Op.DESCRIBE, TOPIC, "t")],
        [GROUP_DENIED, TOPIC_DENIED],
    ),
    Case(69, 1, request(69, group_ids=("g",)), [allow(Op.DESCRIBE, GROUP, "g")], [GROUP_DENIED]),
    Case(
        75,
        0,
        request(75, topics=(topic(75, "Topic", name="t"),), cursor=None),
        [allow(Op.DESCRIBE, TOPIC, "t")],
        [TOPIC_DENIED],
    ),
]


def case_id(case: Case) -> str:
    rights = "+".join(Op(acl.operation).name for acl in case.needed)
    return f"{find_api(case.key).name}-v{case.version}-{rights}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_request_needs_all_of_its_rights(case: Case) -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        await offsets_partition(node)
        for missing, error in zip(case.needed, case.errors, strict=True):
            node.grant(*(acl for acl in case.needed if acl != missing))
            response = await node.answer(case.key, case.version, case.request)
            assert denials(response) == {error}, (missing, response)
            # With every right but this one, which an entry denies.
            node.grant(
                *(allow(Op.ALL, kind, "*") for kind in (TOPIC, GROUP, TXN)),
                *case.needed,
                *(missing._replace(permission=PermissionType.DENY),),
            )
            if not case.also_enough:
                response = await node.answer(case.key, case.version, case.request)
                assert denials(response) == {error}, (missing, response)
        for enough in (*case.also_enough, case.needed):
            node.grant(*enough)
            response = await node.answer(case.key, case.version, case.request)
            assert denials(response) == set(), (enough, response)

    run(main, **SETTINGS, **{"transaction.two.phase.commit.enable": "true"})


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_hidden_topic_is_answered_as_one_that_does_not_exist(case: Case) -> None:
    """Also with all rights on groups and transactional ids. Some rights on the cluster are for all
    topics."""
    others = [allow(Op.ALL, kind, "*") for kind in (GROUP, TXN)]
    served = SERVED[case.key]

    def answer(version: int, rights: Sequence[Acl], *, exists: bool) -> object:
        async def main(node: AuthorizedNode) -> object:
            if exists:
                (partition, *_others) = node.create("t", partitions=3)
                partition.append_produced(records())
            await offsets_partition(node)
            node.grant(*rights)
            try:
                return await node.answer(case.key, version, case.request)
            except ProtocolError as error:
                # The request has fields that this version does not have.
                return str(error)

        return run(main, **SETTINGS, **{"transaction.two.phase.commit.enable": "true"})

    for version in {served.first, case.version}:
        for rights in ([], others):
            present = answer(version, rights, exists=True)
            assert present == answer(version, rights, exists=False)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_super_user_needs_no_entry(case: Case) -> None:
    async def main(node: AuthorizedNode) -> None:
        node.create("t")
        response = await node.answer(case.key, case.version, case.request, ROOT)
        assert denials(response) == set()

    run(main)


def test_every_served_api_has_an_entry_with_its_rights() -> None:
    for served, checks in (
        (SERVED, BROKER_CHECKS),
        (TWO_PHASE_COMMIT_SERVED, BROKER_CHECKS),
        (CONTROLLER_SERVED, CONTROLLER_CHECKS),
    ):
        for key in served:
            entry = entry_of(key, checks)
            assert callable(entry.load()), key
            assert entry.needs or key in OPEN, f"{find_api(key).name} needs no right"


def test_an_api_without_an_entry_is_not_served() -> None:
    with pytest.raises(InvariantBroken, match="nobody may use it"):
        entry_of(9999, BROKER_CHECKS)


def test_the_requests_of_controllers_and_brokers_need_cluster_action() -> None:
    for key in (1, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82):
        assert CONTROLLER_CHECKS[key].needs == ((Op.CLUSTER_ACTION, CLUSTER),)
    assert CONTROLLER_CHECKS[60].needs == ((Op.ALTER, CLUSTER),)


def test_every_api_of_brokers_has_a_case_here() -> None:
    elsewhere = {1, 16, 24, 38, 41, 60, 66}
    assert {case.key for case in CASES} | elsewhere | OPEN >= set(SERVED)


VERSIONS = [
    (key, version)
    for key, served in TWO_PHASE_COMMIT_SERVED.items()
    for version in range(served.first, served.last + 1)
    if key not in OPEN
]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_answers_a_client_without_rights(key: int, version: int) -> None:
    async def main(node: AuthorizedNode) -> None:
        asked = request(key, acks=1) if key == 0 else request(key)
        await node.answer(key, version, asked)

    run(main)


CONTROLLER_VERSIONS = [
    (key, version)
    for key, served in CONTROLLER_SERVED.items()
    for version in range(served.first, served.last + 1)
    if key not in OPEN
]


@pytest.mark.parametrize(("key", "version"), CONTROLLER_VERSIONS)
def test_a_controller_executes_nothing_for_a_client_without_rights(key: int, version: int) -> None:
    def execute(_parts: object, asked: Any, _context: object) -> object:
        # The handlers of delegation tokens check them themselves.
        assert key in (19, 20, 32, 33, 37, 38, 41, 44), f"{asked} is executed"
        return response_class(key)()

    async def main(node: AuthorizedNode) -> None:
        handlers = guarded(lambda _key: execute, node.authorizer, CONTROLLER_CHECKS)
        context = RequestContext(
            key, version, 7, "x", "CONTROLLER", "a", 1, "10.0.0.2:1", 0.0, ConnectionHandle()
        )
        response = handlers(key)(node.parts, request(key), context)
        encode(response, version)
        # These have errors for the parts of a request, which is empty here.
        if key not in (19, 20, 30, 31, 32, 33, 37, 38, 41, 44, 49, 51) and (key, version) != (
            43,
            0,
        ):
            assert denials(response) == {CLUSTER_DENIED}

    run(main)


def test_quotas_are_refused_for_each_entity() -> None:
    async def main(node: AuthorizedNode) -> None:
        entity = topic(49, "Entry", "Entity", entity_type="user", entity_name="u")
        asked = request(49, entries=(topic(49, "Entry", entity=(entity,)),))
        context = RequestContext(
            49, 1, 7, "x", "PLAINTEXT", "a", 1, "10.0.0.2:1", 0.0, ConnectionHandle()
        )
        guard = Guard(node.authorizer, context)
        call = Call(49, node.image, lambda _request: None)
        response = run_check(entry_of(49, BROKER_CHECKS).load()(guard, asked, call))
        assert [each.error_code for each in response.entries] == [CLUSTER_DENIED]
        encode(response, 1)

    run(main)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_denied_election_has_the_error_of_each_partition(version: int) -> None:
    async def main(node: AuthorizedNode) -> None:
        partitions = topic(43, "TopicPartition", topic="t", partitions=(0, 3))
        response = await node.answer(43, version, request(43, topic_partitions=(partitions,)))
        (result,) = response.replica_election_results
        assert result.topic == "t"
        assert [(each.partition_id, each.error_code) for each in result.partition_result] == [
            (0, CLUSTER_DENIED),
            (3, CLUSTER_DENIED),
        ]
        assert response.error_code == (CLUSTER_DENIED if version >= 1 else 0)

    run(main)


@pytest.mark.parametrize("version", [0, 1])
def test_a_denied_reassignment_has_the_error_of_each_partition(version: int) -> None:
    async def main(node: AuthorizedNode) -> None:
        partitions = tuple(
            topic(45, "Topic", "Partition", partition_index=index, replicas=(1,))
            for index in (0, 3)
        )
        asked = request(45, topics=(topic(45, "Topic", name="t", partitions=partitions),))
        response = await node.answer(45, version, asked)
        assert response.error_code == CLUSTER_DENIED
        (result,) = response.responses
        assert result.name == "t"
        assert [(each.partition_index, each.error_code) for each in result.partitions] == [
            (0, CLUSTER_DENIED),
            (3, CLUSTER_DENIED),
        ]

    run(main)
