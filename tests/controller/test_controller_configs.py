"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.config.log_settings import LOG_RETENTION_MS, MIN_INSYNC_REPLICAS
from penstock.config.setting import ConfigSource
from penstock.controller.configs.alter import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    alter_configs,
    incremental_alter_configs,
)
from penstock.controller.configs.effective import DynamicBrokerConfig
from penstock.errors import ErrorCode
from penstock.metadata.image import BROKER, GROUP, TOPIC, ConfigResource, MetadataImage
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.protocol.messages.alter_configs import AlterConfigsRequest
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.controller.clusters import after, cluster, context

Legacy = AlterConfigsRequest.Resource
Resource = IncrementalAlterConfigsRequest.Resource
Operation = tuple[str, int, str | None]
Error = tuple[ErrorCode, str | None]

NO_ERROR = (ErrorCode.NONE, None)


def image(*settings: tuple[int, str, str, str]) -> MetadataImage:
    """Return an image with broker 1, topic a, and these settings."""
    configs = [
        ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)
        for kind, of, name, value in settings
    ]
    return cluster().replay([TopicRecord(name="a", topic_id=UUID(int=1_001)), *configs], 20)[0]


def resource(*operations: Operation, kind: int = TOPIC, name: str = "a") -> Resource:
    configs = tuple(
        Resource.Config(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    )
    return Resource(resource_type=kind, resource_name=name, configs=configs)


def altered(
    before: MetadataImage, *resources: Resource, validate_only: bool = False
) -> tuple[MetadataImage, list[Error]]:
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    decision = incremental_alter_configs(before, request, context())
    return after(before, decision), [
        (ErrorCode(response.error_code), response.error_message)
        for response in decision.response.responses
    ]


def configs_after(
    before: MetadataImage, *operations: Operation, of: ConfigResource = (TOPIC, "a")
) -> dict[str, str]:
    now, errors = altered(before, resource(*operations, kind=of[0], name=of[1]))
    assert errors == [NO_ERROR]
    return dict(now.configs.get(of, {}))


def refusal(*operations: Operation, of: ConfigResource = (TOPIC, "a")) -> Error:
    now, (error,) = altered(image(), resource(*operations, kind=of[0], name=of[1]))
    assert now == image()
    return error


def test_set_and_delete() -> None:
    before = image((TOPIC, "a", "retention.ms", "5"))
    assert configs_after(before, ("retention.ms", SET, "7"), ("segment.ms", SET, "9")) == {
        "retention.ms": "7",
        "segment.ms": "9",
    }
    assert configs_after(before, ("retention.ms", DELETE, None)) == {}
    assert configs_after(before, ("segment.ms", DELETE, None), ("no.such", DELETE, None)) == {
        "retention.ms": "5"
    }


def test_append_and_subtract_start_from_the_default() -> None:
    assert configs_after(image(), ("cleanup.policy", APPEND, "compact")) == {
        "cleanup.policy": "delete,compact"
    }
    both = image((TOPIC, "a", "cleanup.policy", "delete,compact"))
    assert configs_after(both, ("cleanup.policy", SUBTRACT, "delete")) == {
        "cleanup.policy": "compact"
    }
    assert configs_after(both, ("cleanup.policy", APPEND, "compact,delete")) == {
        "cleanup.policy": "delete,compact"
    }


def test_unchanged_settings_write_no_record() -> None:
    before = image((TOPIC, "a", "retention.ms", "5"))
    request = IncrementalAlterConfigsRequest(resources=(resource(("retention.ms", SET, "5")),))
    assert incremental_alter_configs(before, request, context()).records == ()


def test_validate_only_writes_no_record() -> None:
    now, errors = altered(image(), resource(("retention.ms", SET, "7")), validate_only=True)
    assert (now, errors) == (image(), [NO_ERROR])


def test_settings_of_one_broker_and_of_all_brokers() -> None:
    assert configs_after(image(), ("log.retention.ms", SET, "7"), of=(BROKER, "1")) == {
        "log.retention.ms": "7"
    }
    assert configs_after(image(), ("log.retention.ms", SET, "7"), of=(BROKER, "")) == {
        "log.retention.ms": "7"
    }


def test_broker_settings_with_unknown_names_are_kept() -> None:
    for name in ("", "1"):
        own = (BROKER, name)
        kept = configs_after(image(), ("no.such", SET, "3"), ("log.retention.ms", SET, "7"), of=own)
        assert kept == {"no.such": "3", "log.retention.ms": "7"}
        assert configs_after(image((*own, "no.such", "3")), ("no.such", DELETE, None), of=own) == {}


def test_unchanged_broker_setting_is_written_so_that_the_broker_reloads_it() -> None:
    before = image((BROKER, "1", "log.retention.ms", "7"))
    request = IncrementalAlterConfigsRequest(
        resources=(resource(("log.retention.ms", SET, "7"), kind=BROKER, name="1"),)
    )
    assert len(incremental_alter_configs(before, request, context()).records) == 1


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (
            ("retention.ms", SET, None),
            (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ),
        (("retention.ms", 9, "1"), (ErrorCode.INVALID_REQUEST, "Unknown operations type 9")),
        (
            ("retention.ms", APPEND, "1"),
            (
                ErrorCode.INVALID_CONFIG,
                "Can't APPEND to key retention.ms because its type is not LIST.",
            ),
        ),
        (
            ("no.such", SUBTRACT, "1"),
            (
                ErrorCode.INVALID_CONFIG,
                "Can't SUBTRACT to key no.such because its type is not LIST.",
            ),
        ),
        (("no.such", SET, "1"), (ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such.")),
        (
            ("retention.ms", SET, "x"),
            (
                ErrorCode.INVALID_CONFIG,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
        ),
    ],
)
def test_invalid_topic_settings(operation: Operation, error: Error) -> None:
    assert refusal(operation) == error


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (
            ("node.id", SET, "3"),
            (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: Set(node.id)"),
        ),
        (
            ("zookeeper.connect", SET, "here:2181"),
            (
                ErrorCode.INVALID_CONFIG,
                (
                    "zookeeper.connect is not supported: like Kafka since 4.0, Penstock stores "
                    "metadata in a quorum of controllers instead of ZooKeeper. Use process.roles, "
                    "node.id, controller.listener.names and controller.quorum.voters or "
                    "controller.quorum.bootstrap.servers."
                ),
            ),
        ),
        (
            ("listeners", SET, "PLAINTEXT://:1"),
            (
                ErrorCode.INVALID_REQUEST,
                (
                    "Cannot update these configs at default cluster level, broker id must be "
                    "specified: Set(listeners)"
                ),
            ),
        ),
        (
            ("log.retention.ms", SET, "x"),
            (
                ErrorCode.INVALID_REQUEST,
                "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
            ),
        ),
    ],
)
def test_invalid_broker_settings(operation: Operation, error: Error) -> None:
    assert refusal(operation, of=(BROKER, "")) == error


@pytest.mark.parametrize(
    ("of", "error"),
    [
        ((TOPIC, "b"), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'b' does not exist.")),
        ((TOPIC, ""), (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")),
        ((TOPIC, "../x"), (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '../x' "
                                                              "contains one or more characters "
                                                              "other than "
          "ASCII alphanumerics, '.', '_' and '-'")),
        ((BROKER, "2"), (ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 2 found.")),
        ((BROKER, "01"), (ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with id 01 found.")),
        (
            (BROKER, "one"),
            (ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: one"),
        ),
        ((8, "1"), (ErrorCode.INVALID_REQUEST, "Unknown resource type 8")),
        ((99, "1"), (ErrorCode.INVALID_REQUEST, "Unknown resource type 99")),
    ],
)  # fmt: skip
def test_unknown_resources(of: ConfigResource, error: Error) -> None:
    assert refusal(("retention.ms", SET, "1"), of=of) == error


def test_duplicate_resources_and_names() -> None:
    twice = resource(("retention.ms", SET, "1"))
    assert altered(image(), twice, twice) == (
        image(),
        [(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2,
    )
    assert refusal(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )


def test_refused_resource_does_not_affect_others() -> None:
    now, errors = altered(
        image(),
        resource(("no.such", SET, "1")),
        resource(("log.retention.ms", SET, "1"), kind=BROKER, name=""),
    )
    assert [code for code, _message in errors] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert now.configs == {(BROKER, ""): {"log.retention.ms": "1"}}


def test_alter_configs_replaces_all_settings() -> None:
    before = image((TOPIC, "a", "retention.ms", "5"), (TOPIC, "a", "segment.ms", "6"))
    configs = (
        Legacy.Config(name="segment.ms", value="8"),
        Legacy.Config(name="flush.ms", value="9"),
    )
    request = AlterConfigsRequest(
        resources=(Legacy(resource_type=TOPIC, resource_name="a", configs=configs),)
    )
    decision = alter_configs(before, request, context())
    assert decision.response.responses[0].error_code == ErrorCode.NONE
    assert after(before, decision).topic_configs("a") == {"segment.ms": "8", "flush.ms": "9"}


def test_alter_configs_refuses_null() -> None:
    configs = (Legacy.Config(name="segment.ms", value=None),)
    request = AlterConfigsRequest(
        resources=(Legacy(resource_type=TOPIC, resource_name="a", configs=configs),)
    )
    decision = alter_configs(image(), request, context())
    assert decision.records == ()
    assert (
        decision.response.responses[0].error_message == "Null value not supported for : segment.ms"
    )


def test_broker_setting_overrides_cluster_default_and_file() -> None:
    before = image(
        (BROKER, "", "log.retention.ms", "5"),
        (BROKER, "1", "log.retention.ms", "6"),
        (BROKER, "", "min.insync.replicas", "2"),
    )
    broker = DynamicBrokerConfig(before, context(min_insync_replicas="3").config)
    assert broker.find(LOG_RETENTION_MS) == (6, ConfigSource.DYNAMIC_BROKER)
    assert broker.find(MIN_INSYNC_REPLICAS) == (2, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert DynamicBrokerConfig(image(), context(min_insync_replicas="3").config).find(
        MIN_INSYNC_REPLICAS
    ) == (3, ConfigSource.STATIC_BROKER)


def test_invalid_dynamic_broker_setting_is_ignored() -> None:
    before = image((BROKER, "1", "log.retention.ms", "soon"), (BROKER, "", "log.retention.ms", "5"))
    assert DynamicBrokerConfig(before, context().config)[LOG_RETENTION_MS] == 5


SESSION, INTERVAL, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
READERS = (GROUP, "readers")


def test_group_need_not_exist_to_have_settings() -> None:
    assert configs_after(image(), (SESSION, SET, "50000"), (ASSIGNMENT, SET, "0"), of=READERS) == {
        SESSION: "50000",
        ASSIGNMENT: "0",
    }
    before = image((*READERS, SESSION, "50000"), (*READERS, INTERVAL, "6000"))
    assert configs_after(before, (SESSION, DELETE, None), of=READERS) == {INTERVAL: "6000"}
    now = image((GROUP, "readers", SESSION, "50000"))
    replaced = Legacy(
        resource_type=GROUP,
        resource_name="readers",
        configs=(Legacy.Config(name=INTERVAL, value="7000"),),
    )
    assert after(
        now, alter_configs(now, AlterConfigsRequest(resources=(replaced,)), context())
    ).configs[READERS] == {INTERVAL: "7000"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            SESSION,
            "44999",
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            SESSION,
            "60001",
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            INTERVAL,
            "4999",
            f"{INTERVAL} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            INTERVAL,
            "15001",
            f"{INTERVAL} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            ASSIGNMENT,
            "15001",
            f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        (
            SESSION,
            "soon",
            f"Invalid value soon for configuration {SESSION}: Not a number of type INT",
        ),
        (SESSION, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        (
            "share.session.timeout.ms",
            "45000",
            "Unknown group config name: share.session.timeout.ms",
        ),
    ],
)
def test_invalid_group_settings(name: str, value: str, message: str) -> None:
    assert refusal((name, SET, value), of=READERS) == (ErrorCode.INVALID_CONFIG, message)


def test_session_timeout_of_a_group_exceeds_its_heartbeat_interval() -> None:
    node = context(**{"group.consumer.min.session.timeout.ms": "5000"})
    request = IncrementalAlterConfigsRequest(
        resources=(resource((SESSION, SET, "5000"), kind=GROUP, name="readers"),)
    )
    (refused,) = incremental_alter_configs(image(), request, node).response.responses
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_CONFIG,
        f"{SESSION} must be greater than {INTERVAL}",
    )


def test_unknown_setting_of_another_release_does_not_block_changes() -> None:
    before = image((*READERS, "share.session.timeout.ms", "45000"))
    assert len(configs_after(before, (SESSION, SET, "50000"), of=READERS)) == 2
    assert configs_after(before, ("share.session.timeout.ms", DELETE, None), of=READERS) == {}


def test_groups_have_neither_default_resource_nor_lists() -> None:
    assert refusal((SESSION, SET, "50000"), of=(GROUP, "")) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
    message = f"Can't APPEND to key {SESSION} because its type is not LIST."
    assert refusal((SESSION, APPEND, "50000"), of=READERS) == (ErrorCode.INVALID_CONFIG, message)
