"""CreateTopics."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.config.setting import ConfigSource
from penstock.controller.topics.create import create_topics
from penstock.errors import ErrorCode
from penstock.metadata.image import BROKER, UNASSIGNED_DIRECTORY, MetadataImage, PartitionState
from penstock.protocol.codec import encode_bytes
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tests.controller.clusters import FIRST_UUID, after, broker, cluster, context, directory

Topic = CreateTopicsRequest.Topic
Result = CreateTopicsResponse.Topic


def requested(
    name: str = "a",
    partitions: int = 1,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, tuple[int, ...]] | None = None,
) -> Topic:
    chosen = tuple(
        Topic.Assignment(partition_index=index, broker_ids=ids)
        for index, ids in (assignments or {}).items()
    )
    given = tuple(Topic.Config(name=key, value=value) for key, value in (configs or {}).items())
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=chosen,
        configs=given,
    )


def created(
    *topics: Topic, image: MetadataImage | None = None, validate_only: bool = False
) -> tuple[MetadataImage, tuple[Result, ...]]:
    image = image or cluster()
    decision = create_topics(
        image, CreateTopicsRequest(topics=topics, validate_only=validate_only), context()
    )
    return after(image, decision), decision.response.topics


def refusal(topic: Topic, image: MetadataImage | None = None) -> tuple[ErrorCode, str | None]:
    before = image or cluster()
    now, (result,) = created(topic, image=before)
    assert now == before
    return ErrorCode(result.error_code), result.error_message


def assigned(assignments: dict[int, tuple[int, ...]]) -> Topic:
    return requested(partitions=-1, factor=-1, assignments=assignments)


def test_new_partitions_are_led_by_their_first_replica() -> None:
    image, (result,) = created(requested("orders", 3, 1))
    first = PartitionState(
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory(1),),
    )
    assert image.topics["orders"].partitions == {0: first, 1: first, 2: first}
    assert image.topics["orders"].id == result.topic_id == UUID(int=FIRST_UUID)
    assert (
        result.error_code,
        result.error_message,
        result.num_partitions,
        result.replication_factor,
    ) == (0, None, 3, 1)


def test_every_version_of_the_response_can_be_encoded() -> None:
    _image, results = created(requested("orders"), requested("..", 1))
    assert all(
        encode_bytes(CreateTopicsResponse(topics=results), version) for version in range(2, 8)
    )


def test_counts_of_minus_one_are_the_defaults_of_the_controller() -> None:
    image = cluster(broker(1), broker(2), broker(3))
    request = CreateTopicsRequest(topics=(requested("a", -1, -1),))
    (result,) = create_topics(
        image, request, context(num_partitions="6", default_replication_factor="2")
    ).response.topics
    assert (result.num_partitions, result.replication_factor) == (6, 2)


def test_settings_are_recorded_and_returned_with_their_source() -> None:
    dynamic = ConfigRecord(
        resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2"
    )
    image = cluster().replay([dynamic], 10)[0]
    now, (result,) = created(
        requested(configs={"retention.ms": "1000", "cleanup.policy": "compact"}), image=image
    )
    assert now.topic_configs("a") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    shown = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert shown["retention.ms"] == ("1000", ConfigSource.DYNAMIC_TOPIC)
    assert shown["min.insync.replicas"] == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert shown["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT)
    assert "internal.segment.bytes" not in shown


def test_validate_only_writes_no_record() -> None:
    image, (result,) = created(requested(), validate_only=True)
    assert image == cluster()
    assert (result.error_code, result.num_partitions) == (0, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "é", "a\n", "a\0"])
def test_illegal_names(name: str) -> None:
    code, message = refusal(requested(name))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (message or "").startswith("Topic name is invalid: ")


@pytest.mark.parametrize("name", ["a", "x" * 249, "a.b_c-D9", "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert created(requested(name))[1][0].error_code == ErrorCode.NONE


def test_metadata_log_cannot_be_created() -> None:
    message = "Creation of internal topic __cluster_metadata is prohibited."
    assert refusal(requested("__cluster_metadata")) == (ErrorCode.INVALID_REQUEST, message)


def test_existing_topic_is_refused() -> None:
    image, _results = created(requested("a.b"))
    assert refusal(requested("a.b"), image) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'a.b' already exists.",
    )


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    image, _results = created(requested("a.b"))
    assert refusal(requested("a_b"), image) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    _image, results = created(requested("x.y"), requested("x_y"))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_duplicate_name_is_refused_and_others_are_created() -> None:
    image, results = created(requested("a"), requested("b"), requested("a", 2))
    codes = {result.name: (result.error_code, result.error_message) for result in results}
    assert codes == {"a": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."), "b": (0, None)}
    assert list(image.topics) == ["b"]


@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_invalid_partition_counts(partitions: int) -> None:
    message = "Number of partitions was set to an invalid non-positive value."
    assert refusal(requested(partitions=partitions)) == (ErrorCode.INVALID_PARTITIONS, message)


@pytest.mark.parametrize("factor", [0, -2, -(2**15)])
def test_invalid_replication_factors(factor: int) -> None:
    message = "Replication factor must be larger than 0, or -1 to use the default value."
    assert refusal(requested(factor=factor)) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def test_more_replicas_than_brokers() -> None:
    message = (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot "
        "be reached because only 3 broker(s) are "
        "registered or some brokers have all their log directories cordoned."
    )
    image = cluster(broker(1), broker(2), broker(3))
    assert refusal(requested(factor=4), image) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def test_no_active_broker() -> None:
    message = (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or "
        "have all their log directories cordoned."
    )
    assert refusal(requested(), cluster(broker(1, fenced=True))) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        message,
    )
    assert refusal(requested(), MetadataImage.empty()) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        message,
    )


@pytest.mark.parametrize("partitions", [10_001, 2**31 - 1])
def test_too_many_partitions_in_a_request(partitions: int) -> None:
    image, results = created(requested("a", partitions), requested("b"))
    assert image == cluster()
    assert {result.name: result.error_message for result in results} == dict.fromkeys(
        "ab", "Excessively large number of partitions per request."
    )
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}


def test_number_of_records_is_bounded_as_in_kafka() -> None:
    assert created(requested(partitions=9_999))[1][0].error_code == ErrorCode.NONE
    assert refusal(requested(partitions=10_000)) == (
        ErrorCode.POLICY_VIOLATION,
        "Unable to perform excessively large batch operation.",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("segment.bytes", "3"),
        ("cleanup.policy", "keep"),
    ],
)
def test_invalid_settings(name: str, value: str) -> None:
    code, message = refusal(requested(configs={name: value}))
    assert code == ErrorCode.INVALID_CONFIG
    assert name in (message or "")


def test_null_settings_are_refused() -> None:
    assert refusal(requested(configs={"retention.ms": None})) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    )


def test_manual_assignment() -> None:
    image = cluster(broker(1), broker(2, fenced=True), broker(3, directories=2))
    now, (result,) = created(assigned({1: (3, 1), 0: (2, 1)}), image=image)
    assert result.error_code == ErrorCode.NONE
    assert now.topics["a"].partitions == {
        0: PartitionState(
            replicas=(2, 1), isr=(1,), leader=1, directories=(directory(2), directory(1))
        ),
        1: PartitionState(
            replicas=(3, 1), isr=(3, 1), leader=3, directories=(UNASSIGNED_DIRECTORY, directory(1))
        ),
    }


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({0: ()}, "The manual partition assignment includes an empty replica list."),
        (
            {0: (7,)},
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        ({0: (1, 1)}, "The manual partition assignment includes the broker 1 more than once."),
        ({1: (1,)}, "partitions should be a consecutive 0-based integer sequence"),
        (
            {0: (1,), 1: (1, 2)},
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent with previous "
            "partitions, which have 1 replica(s).",
        ),
        (
            {0: (3,)},
            (
                "All brokers specified in the manual partition assignment for partition 0 are "
                "fenced "
                "or in controlled shutdown."
            ),
        ),
    ],
)
def test_invalid_assignments(assignments: dict[int, tuple[int, ...]], message: str) -> None:
    image = cluster(broker(1), broker(2), broker(3, fenced=True))
    assert refusal(assigned(assignments), image) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_partition_assigned_twice() -> None:
    twice = Topic(
        name="a",
        num_partitions=-1,
        replication_factor=-1,
        assignments=(Topic.Assignment(broker_ids=(1,)),) * 2,
    )
    message = "Found multiple manual partition assignments for partition 0"
    assert refusal(twice) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


@pytest.mark.parametrize(
    ("partitions", "factor", "field"), [(1, -1, "numPartitions"), (-1, 1, "replication factor")]
)
def test_assignments_and_counts_exclude_each_other(
    partitions: int, factor: int, field: str
) -> None:
    message = f"A manual partition assignment was specified, but {field} was not set to -1."
    assert refusal(requested(partitions=partitions, factor=factor, assignments={0: (1,)})) == (
        ErrorCode.INVALID_REQUEST,
        message,
    )
