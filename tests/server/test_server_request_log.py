"""penstock.request logs requests, penstock.audit logs what clients change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import CONTROLLER_SERVED, SERVED, loggers
from penstock.handlers.context import ConnectionHandle, RequestContext
from penstock.handlers.loggers import TRACE
from penstock.limits import (
    AUDITED_COMMITS_S,
    AUDITED_COMMITTERS,
    LOGGED_NAME_CHARACTERS,
    LOGGED_NAMES,
    LOGGED_REQUEST_CHARACTERS,
)
from penstock.node.shards.marker_channel import SENDER
from penstock.protocol.apis import find_api
from penstock.protocol.messages.alter_configs import AlterConfigsRequest
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.envelope import EnvelopeRequest
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from penstock.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.security.authorizer import Authorizer
from penstock.security.principals import KafkaPrincipal
from penstock.server.request_log import AUDITED, RepeatedCommits, audited, log_request

Topic = CreateTopicsRequest.Topic
Result = CreateTopicsResponse.Topic
ALICE, NODE = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "node")


def context(api_key: int) -> RequestContext:
    connection = ConnectionHandle(opened=0.0)
    return RequestContext(
        api_key, 1, 42, "shop", "PLAINTEXT", "127.0.0.1", 9092, "10.0.0.7:5000", 0.0, connection
    )


def audit(request: Any, api_key: int, response: Any) -> object:
    def handle(_parts: Any, _request: Any, _context: RequestContext) -> object:
        return response

    return audited(handle)(None, request, context(api_key))


class Counted(tuple[Any, ...]):
    """Counts the elements that are read."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for element in super().__iter__():
            self.read += 1
            yield element


def test_a_change_and_its_errors_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=(Topic(name="a"), Topic(name="b")))
    response = CreateTopicsResponse(
        topics=(
            Result(name="a"),
            Result(name="b", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        )
    )

    async def main() -> None:
        async def later() -> CreateTopicsResponse:
            return response

        result = audit(request, 19, later())
        assert isinstance(result, Awaitable)
        assert await result is response

    with caplog.at_level(logging.INFO, "penstock.audit"):
        asyncio.run(main())
    assert caplog.messages == [
        "CreateTopics v1 of client 'shop' at 10.0.0.7:5000 on PLAINTEXT: 'a', 'b': "
        "TOPIC_ALREADY_EXISTS"
    ]


def test_access_control_entries_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=2,
        resource_name="orders\n",
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=2,
    )
    deletion = DeleteAclsRequest.Filter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:bob",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(CreateAclsRequest(creations=(creation,)), 30, CreateAclsResponse())
        audit(DeleteAclsRequest(filters=(deletion,)), 31, DeleteAclsResponse())
    created, deleted = caplog.messages
    assert "DENY User:alice from * READ on TOPIC LITERAL" in created
    assert "\n" not in created
    assert "ANY User:bob from all hosts ANY on ANY ANY all names" in deleted


def test_values_of_configs_are_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name="ssl.key.password", config_operation=0, value="secret")
    request = IncrementalAlterConfigsRequest(
        resources=(resource(resource_type=4, resource_name="1", configs=(config,)),)
    )
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(request, 44, IncrementalAlterConfigsResponse())
    (line,) = caplog.messages
    assert line.endswith(": '1', 'ssl.key.password': done")
    assert "secret" not in line


def test_a_long_request_has_a_short_line(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=tuple(Topic(name=f"t{n}") for n in range(100_000)))
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(request, 19, CreateTopicsResponse())
    (line,) = caplog.messages
    assert line.endswith(f", 't{LOGGED_NAMES - 1}'…: done")


def test_a_name_is_quoted_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    names = ("x\n2026-11-18 09:01:10,000 ERROR [node 1] penstock.log: a", "a: done", "t" * 32_000)
    request = CreateTopicsRequest(topics=tuple(Topic(name=name) for name in names))
    evil = context(19)._replace(client_id="c\n" * 15_000)
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audited(lambda *_: CreateTopicsResponse())(None, request, evil)
    (line,) = caplog.messages
    assert line.isprintable()
    assert "'x\\n2026-11-18 09:01:10,000 ERROR [node 1] penstock.log: a', 'a: done', 'tttt" in line
    assert len(line) < 4 * LOGGED_NAME_CHARACTERS


def failing_now(*_: object) -> object:
    raise KafkaError(ErrorCode.NOT_CONTROLLER, "value hunter2 is invalid")


def failing_later(*_: object) -> object:
    async def fail() -> None:
        raise ValueError("value hunter2 is invalid")

    return fail()


def cancelled(*_: object) -> object:
    async def fail() -> None:
        raise asyncio.CancelledError

    return fail()


@pytest.mark.parametrize(
    ("handler", "error", "outcome"),
    [
        (failing_now, KafkaError, "failed: NOT_CONTROLLER"),
        (failing_later, ValueError, "failed: ValueError"),
        (cancelled, asyncio.CancelledError, "failed: CancelledError"),
    ],
)
def test_a_change_that_fails_is_audited(
    caplog: pytest.LogCaptureFixture,
    handler: Callable[..., object],
    error: type[BaseException],
    outcome: str,
) -> None:
    """It may have been made all the same. The text of an error may have a secret."""

    async def main() -> None:
        response = audited(handler)(None, CreateTopicsRequest(topics=(Topic(name="a"),)), shop)
        assert isinstance(response, Awaitable)
        await response

    shop = context(19)
    with caplog.at_level(logging.INFO, "penstock.audit"), pytest.raises(error):
        asyncio.run(main())
    (line,) = caplog.messages
    assert line.endswith(f"on PLAINTEXT: 'a': {outcome}")


def test_a_request_that_only_validates_says_so(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=(Topic(name="a"),), validate_only=True)
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(request, 19, CreateTopicsResponse())
    assert caplog.messages[0].endswith(": 'a': validated only, done")


def test_an_unknown_error_code_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    """A controller of a later version may return one."""
    response = CreateTopicsResponse(topics=(Result(name="a", error_code=9_999),))
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audit(CreateTopicsRequest(topics=(Topic(name="a"),)), 19, response)
    assert caplog.messages[0].endswith(": 'a': error 9999")


ABORTED = "producer_id=7, transaction_result=False, 't', partition_indexes=3: done"
MARKER = WriteTxnMarkersRequest.Marker(
    producer_id=7, topics=(WriteTxnMarkersRequest.Marker.Topic(name="t", partition_indexes=(3,)),)
)


@pytest.mark.parametrize(
    ("client_id", "listener", "is_audited"),
    [
        ("penstock-cli", "PLAINTEXT", True),
        ("penstock-cli", "BROKERS", True),
        (SENDER.format(2), "PLAINTEXT", True),
        (SENDER.format(2), "BROKERS", False),
    ],
)
def test_markers_are_audited_unless_a_coordinator_sends_them(
    caplog: pytest.LogCaptureFixture, client_id: str, listener: str, is_audited: bool
) -> None:
    """`penstock transactions abort` ends a producer's transaction. Brokers send markers for each
    transaction."""
    sender = context(27)._replace(client_id=client_id, listener_name=listener)
    assert audited_markers(caplog, sender, authorizer=None) == is_audited * [ABORTED]


@pytest.mark.parametrize(("principal", "is_audited"), [(ALICE, True), (NODE, False)])
def test_a_client_cannot_hide_its_markers_behind_the_client_id_of_a_coordinator(
    caplog: pytest.LogCaptureFixture, principal: KafkaPrincipal, is_audited: bool
) -> None:
    """ALTER on the cluster is enough to abort a transaction, and brokers have CLUSTER_ACTION."""
    sender = context(27)._replace(client_id=SENDER.format(2), listener_name="BROKERS")
    sender.connection.principal = principal
    authorizer = Authorizer([str(NODE)], is_ready=True)
    alter = Acl(
        ResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        str(ALICE),
        "*",
        AclOperation.ALTER,
        PermissionType.ALLOW,
    )
    for _step in authorizer.apply({UUID(int=1): (None, alter)}, {UUID(int=1): alter}):
        pass
    assert audited_markers(caplog, sender, authorizer) == is_audited * [ABORTED]


def audited_markers(
    caplog: pytest.LogCaptureFixture, sender: RequestContext, authorizer: Authorizer | None
) -> list[str]:
    parts = SimpleNamespace(
        config=SimpleNamespace(inter_broker_listener_name="BROKERS"), authorizer=authorizer
    )
    request = WriteTxnMarkersRequest(markers=(MARKER,))
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audited(lambda *_: WriteTxnMarkersResponse())(parts, request, sender)
    return [line.split(": ", 1)[1] for line in caplog.messages]


def commit(member_id: str = "", group_id: str = "g", epoch: int = -1) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.Topic
    partition = topic.Partition(partition_index=3, committed_offset=1_500)
    return OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=(topic(name="t", partitions=(partition,)),),
    )


def test_offsets_that_no_member_commits_are_audited(caplog: pytest.LogCaptureFixture) -> None:
    """`penstock groups reset-offsets` does. So does a consumer without a group's protocol, which
    may commit all the time: it has one line in a while."""
    handler = audited(lambda *_: OffsetCommitResponse())
    first = context(8)
    with caplog.at_level(logging.INFO, "penstock.audit"):
        handler(None, commit(member_id="member-1", epoch=3), first)
        assert caplog.messages == []
        for _ in range(3):
            handler(None, commit(), first)
        handler(None, commit(), first._replace(peer="10.0.0.8:5000"))
        handler(None, commit(group_id="h"), first)
        handler(None, commit(), first._replace(received=AUDITED_COMMITS_S, peer="10.0.0.7:5001"))
    at = "OffsetCommit v1 of client 'shop' at 10.0.0.{} on PLAINTEXT: '{}', 't', partition_index=3,"
    offset = "committed_offset=1500: done"
    assert caplog.messages == [
        f"{at.format('7:5000', 'g')} {offset}",
        f"{at.format('8:5000', 'g')} {offset}",
        f"{at.format('7:5000', 'h')} {offset}",
        f"{at.format('7:5001', 'g')} {offset} (2 more like this one were left out before it)",
    ]


def test_a_commit_without_a_generation_is_audited_whatever_member_it_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group without members accepts it."""
    handler = audited(lambda *_: OffsetCommitResponse())
    with caplog.at_level(logging.INFO, "penstock.audit"):
        handler(None, commit(member_id="nobody"), context(8))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("epoch", "lines"), [(3, 0), (-1, 1)])
def test_offsets_that_no_member_commits_in_a_transaction_are_audited(
    caplog: pytest.LogCaptureFixture, epoch: int, lines: int
) -> None:
    topic = TxnOffsetCommitRequest.Topic
    partition = topic.Partition(partition_index=3, committed_offset=1_500)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        generation_id=epoch,
        member_id="m",
        topics=(topic(name="t", partitions=(partition,)),),
    )
    assert 28 in AUDITED
    with caplog.at_level(logging.INFO, "penstock.audit"):
        audited(lambda *_: TxnOffsetCommitResponse())(None, request, context(28))
    assert [line.split(": ", 1)[1] for line in caplog.messages] == lines * [
        "'g', producer_id=0, 't', partition_index=3, committed_offset=1500: done"
    ]


def test_the_commits_of_one_principal_do_not_hide_those_of_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They may have the same client id and address."""
    handler = audited(lambda *_: OffsetCommitResponse())
    with caplog.at_level(logging.INFO, "penstock.audit"):
        for principal in (NODE, ALICE, ALICE):
            sender = context(8)
            sender.connection.principal = principal
            handler(None, commit(), sender)
    assert [line.split("(")[1].split(")")[0] for line in caplog.messages] == [
        "'User:node'",
        "'User:alice'",
    ]


def test_many_groups_take_little_memory() -> None:
    commits = RepeatedCommits()
    for number in range(2 * AUDITED_COMMITTERS):
        name = f"{number}" + "g" * 30_000
        assert commits.left_out(commit(group_id=name), context(8)) == 0
    assert len(commits.seen) == AUDITED_COMMITTERS
    assert max(len(text) for key in commits.seen for text in key) <= LOGGED_NAME_CHARACTERS


# They change nothing by themselves, or are what producers, consumers, brokers and controllers do
# all the time. Envelope has a request that the node before has audited.
NOT_AUDITED = {
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ApiVersions",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "DescribeConfigs",
    "DescribeLogDirs",
    "ListPartitionReassignments",
    "DescribeQuorum",
    "DescribeAcls",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "AlterPartition",
    "Envelope",
    "FetchSnapshot",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "AllocateProducerIds",
    "ControllerRegistration",
    "AssignReplicasToDirs",
    "UpdateRaftVoter",
    "SaslHandshake",
    "SaslAuthenticate",
    "DescribeUserScramCredentials",
    "DescribeClientQuotas",
    "DescribeDelegationToken",
}


def test_every_api_is_audited_or_known_not_to_be() -> None:
    served = {find_api(key).name for key in {**SERVED, **CONTROLLER_SERVED}}
    assert served == {find_api(key).name for key in AUDITED} | NOT_AUDITED


def logged(request: Any, api_key: int, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(TRACE, "penstock.request"):
        log_request(request, context(api_key), 120)
    assert caplog.records[-1].levelname == "TRACE"
    return caplog.messages[-1].removeprefix("correlation id 42: ")


def test_content_is_logged_at_trace(caplog: pytest.LogCaptureFixture) -> None:
    request = CreateTopicsRequest(topics=(Topic(name="a"),))
    with caplog.at_level(logging.DEBUG, "penstock.request"):
        log_request(request, context(19), 120)
    line = "CreateTopics v1 of client 'shop' at 10.0.0.7:5000 on PLAINTEXT, 120 bytes, "
    assert caplog.messages == [f"{line}correlation id 42"]
    assert "CreateTopicsRequest(topics=(CreateTopicsRequest.Topic(name='a', " in logged(
        request, 19, caplog
    )


TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP, UNKNOWN = 2, 4, 8, 16, 32, 99


@pytest.mark.parametrize(
    ("kind", "name", "is_shown"),
    [
        (TOPIC, "retention.ms", True),
        (TOPIC, "ssl.keystore.password", False),
        (BROKER, "log.cleaner.threads", True),
        (BROKER, "penstock.metrics.token", False),
        (BROKER, "ssl.keystore.password", False),
        (BROKER, "retention.ms", False),
        (GROUP, "consumer.session.timeout.ms", True),
        (GROUP, "retention.ms", False),
        (LOGGER, "root", True),
        (CLIENT_METRICS, "metrics", True),
        (UNKNOWN, "retention.ms", False),
    ],
)
def test_secrets_are_hidden(
    caplog: pytest.LogCaptureFixture, kind: int, name: str, is_shown: bool
) -> None:
    """As in Kafka (RequestChannel.loggableRequest), the value of an unknown config is one."""
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name=name, config_operation=0, value="hunter2")
    incremental = IncrementalAlterConfigsRequest(
        resources=(resource(resource_type=kind, resource_name="1", configs=(config,)),)
    )
    old = AlterConfigsRequest.Resource
    legacy = AlterConfigsRequest(
        resources=(old(resource_type=kind, configs=(old.Config(name=name, value="hunter2"),)),)
    )
    for line in (logged(incremental, 44, caplog), logged(legacy, 33, caplog)):
        assert f"name='{name}'" in line
        assert ("value='hunter2'" in line, "value=[hidden]" in line) == (is_shown, not is_shown)


def test_secrets_of_a_new_topic_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    configs = (
        Topic.Config(name="retention.ms", value="5"),
        Topic.Config(name="password", value="hunter2"),
    )
    line = logged(CreateTopicsRequest(topics=(Topic(name="a", configs=configs),)), 19, caplog)
    assert "value='5'" in line
    assert "hunter2" not in line


def test_bytes_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They are records, and requests that a broker forwards, which may have secrets."""
    line = logged(EnvelopeRequest(request_data=b"hunter2"), 58, caplog)
    assert line.startswith("EnvelopeRequest(request_data=<7 bytes>, ")
    topic = ProduceRequest.TopicData
    partition = topic.PartitionData(index=3, records=memoryview(b"hunter2"))
    produce = ProduceRequest(topic_data=(topic(name="a", partition_data=(partition,)),))
    assert "index=3, records=<7 bytes>)" in logged(produce, 0, caplog)


def test_only_the_start_of_a_request_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """A request may have megabytes."""
    topics = Counted([Topic(name="t" * 1_000)] * 100_000)
    line = logged(CreateTopicsRequest(topics=topics), 19, caplog)
    assert len(line) == LOGGED_REQUEST_CHARACTERS
    assert topics.read <= LOGGED_REQUEST_CHARACTERS // LOGGED_NAME_CHARACTERS + 1
    indexes = Counted(range(100_000))
    logged(
        OffsetFetchRequest(topics=(OffsetFetchRequest.Topic(partition_indexes=indexes),)), 9, caplog
    )
    assert indexes.read <= LOGGED_REQUEST_CHARACTERS


def test_no_request_silences_the_audit_log() -> None:
    config = IncrementalAlterConfigsRequest.Resource.Config
    audit, root = logging.getLogger("penstock.audit"), logging.getLogger()
    before = audit.level, root.level
    try:
        with pytest.raises(KafkaError, match="cannot be silenced"):
            loggers.alter(
                [config(name="penstock.audit", config_operation=0, value="WARN")],
                validate_only=False,
            )
        audit.setLevel(logging.NOTSET)
        root.setLevel(logging.INFO)
        loggers.alter([config(name="root", config_operation=0, value="FATAL")], validate_only=False)
        assert audit.isEnabledFor(logging.INFO)
    finally:
        audit.setLevel(before[0])
        root.setLevel(before[1])
