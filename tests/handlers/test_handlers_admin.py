"""Topics and configs: create, alter, describe and delete them through the handlers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.config.settings import NODE_SETTINGS
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.errors import ErrorCode
from penstock.protocol.messages.alter_configs import AlterConfigsRequest
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest
from penstock.protocol.messages.create_topics import CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.handlers.fake_node import FakeNode, answer, run

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, DYNAMIC_GROUP = 1, 2, 3, 4, 5, 8


async def describe(
    node: FakeNode, kind: int, name: str, keys: tuple[str, ...] | None = None, version: int = 4
) -> Any:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=version >= 3
    )
    (result,) = (await answer(node, 32, version, request)).results
    return result


async def config(node: FakeNode, kind: int, name: str, key: str) -> Any:
    (entry,) = (await describe(node, kind, name, (key,))).configs
    return entry


def synonyms(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


async def alter(node: FakeNode, kind: int, name: str, key: str, value: str) -> int:
    resource = IncrementalAlterConfigsRequest.Resource
    altered = resource(
        resource_type=kind,
        resource_name=name,
        configs=(resource.Config(name=key, config_operation=0, value=value),),
    )
    response = await answer(node, 44, 1, IncrementalAlterConfigsRequest(resources=(altered,)))
    return int(response.responses[0].error_code)


def test_settings_without_effect_are_described_and_altered() -> None:
    """Kafka's tools set them during a reassignment."""

    async def main(node: FakeNode) -> None:
        node.create("t")
        for key, default, value in (
            ("preallocate", "false", "true"),
            ("leader.replication.throttled.replicas", "", "0:1"),
            ("follower.replication.throttled.replicas", "", "*"),
        ):
            entry = await config(node, TOPIC, "t", key)
            assert (entry.value, entry.config_source) == (default, DEFAULT)
            assert await alter(node, TOPIC, "t", key, value) == 0
            entry = await config(node, TOPIC, "t", key)
            assert (entry.value, entry.config_source) == (value, DYNAMIC_TOPIC)

    run(main)


@pytest.fixture
def some_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("penstock.some_logger")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_levels_of_loggers_are_described_and_altered(some_logger: logging.Logger) -> None:
    name = some_logger.name

    async def main(node: FakeNode) -> None:
        own = str(node.parts.node_id)
        assert await alter(node, LOGGER, own, name, "TRACE") == ErrorCode.NONE
        assert some_logger.isEnabledFor(5)
        entry = await config(node, LOGGER, own, name)
        assert (entry.value, entry.config_source, entry.read_only) == ("TRACE", 6, False)
        assert await alter(node, LOGGER, own, name, "FATAL") == ErrorCode.NONE
        assert (await config(node, LOGGER, own, name)).value == "FATAL"
        names = [entry.name for entry in (await describe(node, LOGGER, own)).configs]
        assert {"root", name, "penstock"} <= set(names)

    run(main)


@pytest.mark.parametrize(
    ("resource", "key", "operation", "value", "code", "text"),
    [
        ("1", "penstock.none", 0, "INFO", ErrorCode.INVALID_CONFIG, "does not exist!"),
        ("1", "penstock", 0, "LOUD", ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL"),
        ("1", "root", 1, None, ErrorCode.INVALID_REQUEST, "Removing the log level of the root"),
        ("1", "root", 2, "INFO", ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        ("1", "root", 9, "INFO", ErrorCode.INVALID_REQUEST, "Unknown operation type 9 is not"),
        ("x", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("7", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "Expected 1, but received 7"),
        ("", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must not be empty"),
        ("1" * 5_000, "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("x" * 32_767, "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("2147483648", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("-1", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "Expected 1, but received -1"),
        ("1_0", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        (" 1", "root", 0, "INFO", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("1", "x" * 32_767, 0, "INFO", ErrorCode.INVALID_CONFIG, "does not exist!"),
        ("1", "root", 0, "L" * 32_767, ErrorCode.INVALID_CONFIG, "is not a supported log level"),
        ("1", "root", 0, None, ErrorCode.INVALID_REQUEST, "Null value not supported for : root"),
        ("7", "root", 0, None, ErrorCode.INVALID_REQUEST, "Null value not supported for : root"),
        ("1", "x" * 32_767, 2, None, ErrorCode.INVALID_REQUEST, "Null value not supported"),
        (
            "1",
            "penstock.some_logger",
            0,
            None,
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_levels_that_are_refused(
    some_logger: logging.Logger,
    resource: str,
    key: str,
    operation: int,
    value: str | None,
    code: ErrorCode,
    text: str,
) -> None:
    changed = IncrementalAlterConfigsRequest.Resource.Config
    configs = (
        changed(name=some_logger.name, config_operation=0, value="DEBUG"),
        changed(name=key, config_operation=operation, value=value),
    )
    altered = IncrementalAlterConfigsRequest.Resource(
        resource_type=LOGGER, resource_name=resource, configs=configs
    )

    async def main(node: FakeNode) -> None:
        assert node.parts.node_id == 1
        request = IncrementalAlterConfigsRequest(resources=(altered,))
        (response,) = (await answer(node, 44, 1, request)).responses
        assert response.error_code == code
        assert text in response.error_message
        assert len(response.error_message) < 1_000, "a response must be possible to encode"
        assert some_logger.level == logging.NOTSET, "nothing is changed"

    run(main)


@pytest.mark.parametrize("own", ["1", "+1", "01", "0" * 5_000 + "1"], ids=lambda own: own[:30])
def test_a_node_has_the_ids_that_java_parses_as_its_own(
    some_logger: logging.Logger, own: str
) -> None:
    async def main(node: FakeNode) -> None:
        assert await alter(node, LOGGER, own, some_logger.name, "DEBUG") == ErrorCode.NONE
        assert some_logger.level == logging.DEBUG

    run(main)


def test_a_resource_that_occurs_twice_is_refused_and_the_others_are_altered(
    some_logger: logging.Logger,
) -> None:
    """Responses have the order of the request, as in Kafka."""
    resource = IncrementalAlterConfigsRequest.Resource

    def altered(
        kind: int, name: str, key: str, value: str
    ) -> IncrementalAlterConfigsRequest.Resource:
        config = resource.Config(name=key, config_operation=0, value=value)
        return resource(resource_type=kind, resource_name=name, configs=(config,))

    async def main(node: FakeNode) -> None:
        node.create("t")
        node.create("u")
        request = IncrementalAlterConfigsRequest(
            resources=(
                altered(LOGGER, "1", some_logger.name, "DEBUG"),
                altered(TOPIC, "u", "retention.ms", "1"),
                altered(TOPIC, "t", "retention.ms", "5"),
                altered(LOGGER, "1", some_logger.name, "ERROR"),
                altered(LOGGER, "+1", some_logger.name, "FATAL"),
                altered(TOPIC, "u", "retention.ms", "2"),
                altered(BROKER, "1", "cordoned.log.dirs", "/nowhere"),
            )
        )
        responses = (await answer(node, 44, 1, request)).responses
        once = "Each resource must appear at most once."
        refused, done = (ErrorCode.INVALID_REQUEST, once), (ErrorCode.NONE, None)
        assert [(response.resource_type, response.resource_name) for response in responses] == [
            (asked.resource_type, asked.resource_name) for asked in request.resources
        ]
        results = [(response.error_code, response.error_message) for response in responses]
        assert results[:-1] == [refused, refused, done, refused, done, refused]
        assert results[-1][0] == ErrorCode.INVALID_REQUEST
        assert some_logger.level == logging.CRITICAL
        assert (await config(node, TOPIC, "t", "retention.ms")).value == "5"

    run(main)


def test_topics_are_created_extended_and_deleted() -> None:
    async def main(node: FakeNode) -> None:
        topic = CreateTopicsRequest.Topic(name="t", num_partitions=2, replication_factor=-1)
        (created,) = (await answer(node, 19, 7, CreateTopicsRequest(topics=(topic,)))).topics
        assert (created.error_code, created.num_partitions, created.topic_id) == (
            0,
            2,
            node.image.topics["t"].id,
        )
        assert created.configs is not None
        (again,) = (await answer(node, 19, 2, CreateTopicsRequest(topics=(topic,)))).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        extended = CreatePartitionsRequest(
            topics=(CreatePartitionsRequest.Topic(name="t", count=5, assignments=None),)
        )
        assert (await answer(node, 37, 3, extended)).results[0].error_code == 0
        assert len(node.image.topics["t"].partitions) == 5
        by_id = DeleteTopicsRequest(topics=(DeleteTopicsRequest.Topic(topic_id=created.topic_id),))
        assert [topic.error_code for topic in (await answer(node, 20, 6, by_id)).responses] == [0]
        by_name = DeleteTopicsRequest(topic_names=("t",))
        assert [topic.error_code for topic in (await answer(node, 20, 1, by_name)).responses] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert node.image.topics == {}

    run(main)


def test_the_error_of_a_name_that_is_nearly_too_long_for_the_protocol_can_be_sent() -> None:
    async def main(node: FakeNode) -> None:
        topic = CreateTopicsRequest.Topic(name="x" * 32_760, num_partitions=1)
        (refused,) = (await answer(node, 19, 7, CreateTopicsRequest(topics=(topic,)))).topics
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "xxx…" in refused.error_message

    run(main)


def test_a_topic_has_every_config_with_type_and_documentation() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        result = await describe(node, TOPIC, "t")
        assert {entry.name for entry in result.configs} == {
            setting.name for setting in TOPIC_SETTINGS.values() if not setting.internal
        }
        for entry in result.configs:
            setting = TOPIC_SETTINGS[entry.name]
            assert (entry.config_type, entry.documentation) == (setting.type, setting.doc)
            assert (entry.config_source, entry.read_only) == (DEFAULT, False)
            assert not entry.is_sensitive
        older = await describe(node, TOPIC, "t", version=1)
        assert [entry.name for entry in older.configs] == [entry.name for entry in result.configs]
        assert (await describe(node, TOPIC, "t", ())).configs == result.configs

    run(main)


def test_the_order_of_sources_is_topic_broker_default_broker_static_default() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        key, broker_key = "max.message.bytes", "message.max.bytes"
        file = (broker_key, "2000000", STATIC)
        default = (broker_key, "1048588", DEFAULT)
        entry = await config(node, TOPIC, "t", key)
        assert (entry.value, entry.config_source, synonyms(entry)) == (
            "2000000",
            STATIC,
            [file, default],
        )
        assert await alter(node, BROKER, "", broker_key, "3000000") == 0
        every = (broker_key, "3000000", DYNAMIC_DEFAULT)
        entry = await config(node, TOPIC, "t", key)
        assert (entry.value, entry.config_source, synonyms(entry)) == (
            "3000000",
            DYNAMIC_DEFAULT,
            [every, file, default],
        )
        assert await alter(node, BROKER, "1", broker_key, "4000000") == 0
        this = (broker_key, "4000000", DYNAMIC_BROKER)
        assert await alter(node, TOPIC, "t", key, "5000000") == 0
        entry = await config(node, TOPIC, "t", key)
        assert (entry.value, entry.config_source) == ("5000000", DYNAMIC_TOPIC)
        assert synonyms(entry) == [(key, "5000000", DYNAMIC_TOPIC), this, every, file, default]
        entry = await config(node, BROKER, "1", broker_key)
        assert (entry.value, entry.config_source, synonyms(entry)) == (
            "4000000",
            DYNAMIC_BROKER,
            [this, every, file, default],
        )
        (entry,) = (await describe(node, BROKER, "")).configs
        assert (entry.name, entry.value, entry.config_source, synonyms(entry)) == (
            broker_key,
            "3000000",
            DYNAMIC_DEFAULT,
            [every],
        )

    run(main, message_max_bytes="2000000")


def test_configs_in_other_units_are_synonyms_only_after_the_config_itself() -> None:
    """Expected values are those of Apache Kafka 4.3 with these two static configs."""

    async def main(node: FakeNode) -> None:
        node.create("t")
        entry = await config(node, TOPIC, "t", "retention.ms")
        assert (entry.value, entry.config_source, synonyms(entry)) == ("7200000", DEFAULT, [])
        entry = await config(node, BROKER, "1", "log.retention.ms")
        assert (entry.value, entry.config_source, synonyms(entry)) == (None, DEFAULT, [])
        for kind, name, key in ((TOPIC, "t", "segment.ms"), (BROKER, "1", "log.roll.ms")):
            entry = await config(node, kind, name, key)
            assert (entry.value, entry.config_source) == ("777777", STATIC)
            assert synonyms(entry) == [
                ("log.roll.ms", "777777", STATIC),
                ("log.roll.hours", "168", DEFAULT),
            ]

    run(main, log_retention_hours="2", log_roll_ms="777777")


def test_a_broker_has_every_config_and_marks_read_only_ones() -> None:
    async def main(node: FakeNode) -> None:
        result = await describe(node, BROKER, "1")
        entries = {entry.name: entry for entry in result.configs}
        assert set(entries) == {
            setting.name for setting in NODE_SETTINGS.values() if not setting.internal
        }
        node_id = entries["node.id"]
        assert (node_id.value, node_id.config_source, node_id.read_only) == ("1", STATIC, True)
        assert entries["log.segment.bytes"].read_only is False

    run(main)


def test_dynamic_broker_configs_that_this_release_does_not_know_are_shown_without_values() -> None:
    async def main(node: FakeNode) -> None:
        assert await alter(node, BROKER, "", "no.such", "secret") == ErrorCode.NONE
        for name in ("", "1"):
            entry = await config(node, BROKER, name, "no.such")
            assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
            assert (entry.config_type, entry.documentation) == (0, None)
            assert synonyms(entry) == [("no.such", None, DYNAMIC_DEFAULT)]
            assert entry.config_source == DYNAMIC_DEFAULT
        assert await alter(node, BROKER, "1", "no.such", "other") == ErrorCode.NONE
        entry = await config(node, BROKER, "1", "no.such")
        assert synonyms(entry) == [
            ("no.such", None, DYNAMIC_BROKER),
            ("no.such", None, DYNAMIC_DEFAULT),
        ]

    run(main)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
    async def main(node: FakeNode) -> None:
        result = await describe(node, kind, name)
        assert (result.error_code, result.resource_type, result.resource_name, result.configs) == (
            code,
            kind,
            name,
            (),
        )
        assert result.error_message

    run(main)


def test_a_group_has_its_own_configs_or_those_of_the_broker() -> None:
    """The synonyms are those of Apache Kafka 4.3, where group and broker configs have different
    names."""

    async def main(node: FakeNode) -> None:
        key, broker_key = "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
        default, file = (broker_key, "1000", DEFAULT), (broker_key, "2000", STATIC)
        entry = await config(node, GROUP, "readers", key)
        assert (entry.value, entry.config_source, synonyms(entry)) == (
            "2000",
            STATIC,
            [file, default],
        )
        assert (entry.config_type, entry.read_only, entry.is_sensitive) == (
            3,
            False,
            False,
        )
        assert entry.documentation
        assert await alter(node, BROKER, "", broker_key, "4000") == 0
        every = (broker_key, "4000", DYNAMIC_DEFAULT)
        entry = await config(node, GROUP, "readers", key)
        assert (entry.value, entry.config_source, synonyms(entry)) == (
            "4000",
            DYNAMIC_DEFAULT,
            [every, file, default],
        )
        assert await alter(node, GROUP, "readers", key, "3000") == 0
        entry = await config(node, GROUP, "readers", key)
        assert (entry.value, entry.config_source) == ("3000", DYNAMIC_GROUP)
        assert synonyms(entry) == [(key, "3000", DYNAMIC_GROUP), every, file, default]
        names = [entry.name for entry in (await describe(node, GROUP, "others")).configs]
        assert names == [key, "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"]
        listed = await answer(node, 74, 1, ListConfigResourcesRequest(resource_types=(GROUP,)))
        assert [
            (found.resource_name, found.resource_type) for found in listed.config_resources
        ] == [("readers", GROUP)]

    run(main, group_consumer_assignment_interval_ms="2000")


def test_alter_configs_replaces_all_configs_and_validates_them() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t", retention_ms="1000")
        resource = AlterConfigsRequest.Resource
        altered = resource(
            resource_type=TOPIC,
            resource_name="t",
            configs=(resource.Config(name="segment.bytes", value="2097152"),),
        )
        validated = AlterConfigsRequest(resources=(altered,), validate_only=True)
        assert (await answer(node, 33, 2, validated)).responses[0].error_code == 0
        assert node.image.topic_configs("t") == {"retention.ms": "1000"}
        response = await answer(node, 33, 2, AlterConfigsRequest(resources=(altered,)))
        assert response.responses[0].error_code == 0
        assert node.image.topic_configs("t") == {"segment.bytes": "2097152"}
        assert await alter(node, TOPIC, "t", "retention.ms", "soon") == ErrorCode.INVALID_CONFIG

    run(main)


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, (), []),
        (1, (), [("a", TOPIC), ("b", TOPIC), ("1", BROKER), ("1", LOGGER)]),
        (1, (BROKER,), [("1", BROKER)]),
        (1, (16, 32), []),
    ],
)
def test_list_config_resources(
    version: int, types: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    async def main(node: FakeNode) -> None:
        node.create("b")
        node.create("a")
        response = await answer(node, 74, version, ListConfigResourcesRequest(resource_types=types))
        resources = [
            (resource.resource_name, resource.resource_type)
            for resource in response.config_resources
        ]
        assert resources == expected
        refused = await answer(node, 74, 1, ListConfigResourcesRequest(resource_types=(3,)))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    run(main)


def test_a_resource_that_is_repeated_is_described_once_and_many_take_turns() -> None:
    """100,000 times this broker would take minutes, and hundreds of megabytes."""

    async def main(node: FakeNode) -> None:
        repeated = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name="1")
        others = tuple(
            DescribeConfigsRequest.Resource(resource_type=GROUP, resource_name=f"g{number}")
            for number in range(30)
        )
        request = DescribeConfigsRequest(resources=(repeated,) * 20_000 + others)
        results = (await answer(node, 32, 4, request)).results
        assert [result.resource_name for result in results] == [
            "1",
            *(f"g{number}" for number in range(30)),
        ]

    run(main)
