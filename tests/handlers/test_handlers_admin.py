"""Topics and settings: created, altered, described, deleted through the handlers."""

from __future__ import annotations

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

TOPIC, BROKER, GROUP = 2, 4, 32
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, DYNAMIC_GROUP = 1, 2, 3, 4, 5, 8


async def describe(
    node: FakeNode, kind: int, name: str, keys: tuple[str, ...] | None = None, version: int = 4
) -> Any:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    asked = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=version >= 3
    )
    (result,) = (await answer(node, 32, version, asked)).results
    return result


async def setting(node: FakeNode, kind: int, name: str, key: str) -> Any:
    (config,) = (await describe(node, kind, name, (key,))).configs
    return config


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in config.synonyms]


async def alter(node: FakeNode, kind: int, name: str, key: str, value: str) -> int:
    resource = IncrementalAlterConfigsRequest.Resource
    asked = resource(
        resource_type=kind,
        resource_name=name,
        configs=(resource.Config(name=key, config_operation=0, value=value),),
    )
    response = await answer(node, 44, 1, IncrementalAlterConfigsRequest(resources=(asked,)))
    return int(response.responses[0].error_code)


def test_topics_come_grow_and_go() -> None:
    async def main(node: FakeNode) -> None:
        topic = CreateTopicsRequest.Topic(name="t", num_partitions=2, replication_factor=-1)
        (made,) = (await answer(node, 19, 7, CreateTopicsRequest(topics=(topic,)))).topics
        assert (made.error_code, made.num_partitions, made.topic_id) == (
            0,
            2,
            node.image.topics["t"].id,
        )
        assert made.configs is not None
        (again,) = (await answer(node, 19, 2, CreateTopicsRequest(topics=(topic,)))).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        grown = CreatePartitionsRequest(
            topics=(CreatePartitionsRequest.Topic(name="t", count=5, assignments=None),)
        )
        assert (await answer(node, 37, 3, grown)).results[0].error_code == 0
        assert len(node.image.topics["t"].partitions) == 5
        by_id = DeleteTopicsRequest(topics=(DeleteTopicsRequest.Topic(topic_id=made.topic_id),))
        assert [one.error_code for one in (await answer(node, 20, 6, by_id)).responses] == [0]
        by_name = DeleteTopicsRequest(topic_names=("t",))
        assert [one.error_code for one in (await answer(node, 20, 1, by_name)).responses] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert node.image.topics == {}

    run(main)


def test_a_topic_has_every_setting_with_its_type_and_words() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        result = await describe(node, TOPIC, "t")
        assert {one.name for one in result.configs} == {
            one.name for one in TOPIC_SETTINGS.values() if not one.internal
        }
        for one in result.configs:
            assert (one.config_type, one.documentation) == (
                TOPIC_SETTINGS[one.name].type,
                TOPIC_SETTINGS[one.name].doc,
            )
            assert (one.config_source, one.read_only, one.is_sensitive) == (DEFAULT, False, False)
        older = await describe(node, TOPIC, "t", version=1)
        assert [one.name for one in older.configs] == [one.name for one in result.configs]
        assert (await describe(node, TOPIC, "t", ())).configs == result.configs

    run(main)


def test_a_value_comes_from_topic_then_broker_then_all_then_file_then_default() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t")
        key, of_broker = "max.message.bytes", "message.max.bytes"
        file = (of_broker, "2000000", STATIC)
        default = (of_broker, "1048588", DEFAULT)
        one = await setting(node, TOPIC, "t", key)
        assert (one.value, one.config_source, synonyms(one)) == ("2000000", STATIC, [file, default])
        assert await alter(node, BROKER, "", of_broker, "3000000") == 0
        every = (of_broker, "3000000", DYNAMIC_DEFAULT)
        one = await setting(node, TOPIC, "t", key)
        assert (one.value, one.config_source, synonyms(one)) == (
            "3000000",
            DYNAMIC_DEFAULT,
            [every, file, default],
        )
        assert await alter(node, BROKER, "1", of_broker, "4000000") == 0
        this = (of_broker, "4000000", DYNAMIC_BROKER)
        assert await alter(node, TOPIC, "t", key, "5000000") == 0
        one = await setting(node, TOPIC, "t", key)
        assert (one.value, one.config_source) == ("5000000", DYNAMIC_TOPIC)
        assert synonyms(one) == [(key, "5000000", DYNAMIC_TOPIC), this, every, file, default]
        one = await setting(node, BROKER, "1", of_broker)
        assert (one.value, one.config_source, synonyms(one)) == (
            "4000000",
            DYNAMIC_BROKER,
            [this, every, file, default],
        )
        (one,) = (await describe(node, BROKER, "")).configs
        assert (one.name, one.value, one.config_source, synonyms(one)) == (
            of_broker,
            "3000000",
            DYNAMIC_DEFAULT,
            [every],
        )

    run(main, message_max_bytes="2000000")


def test_settings_in_other_units_are_synonyms_where_the_setting_itself_is_named() -> None:
    """As Apache Kafka 4.3 answers with these two in its file."""

    async def main(node: FakeNode) -> None:
        node.create("t")
        one = await setting(node, TOPIC, "t", "retention.ms")
        assert (one.value, one.config_source, synonyms(one)) == ("7200000", DEFAULT, [])
        one = await setting(node, BROKER, "1", "log.retention.ms")
        assert (one.value, one.config_source, synonyms(one)) == (None, DEFAULT, [])
        for kind, name, key in ((TOPIC, "t", "segment.ms"), (BROKER, "1", "log.roll.ms")):
            one = await setting(node, kind, name, key)
            assert (one.value, one.config_source) == ("777777", STATIC)
            assert synonyms(one) == [
                ("log.roll.ms", "777777", STATIC),
                ("log.roll.hours", "168", DEFAULT),
            ]

    run(main, log_retention_hours="2", log_roll_ms="777777")


def test_a_broker_has_every_setting_and_says_which_are_fixed() -> None:
    async def main(node: FakeNode) -> None:
        result = await describe(node, BROKER, "1")
        found = {one.name: one for one in result.configs}
        assert set(found) == {one.name for one in NODE_SETTINGS.values() if not one.internal}
        assert (
            found["node.id"].value,
            found["node.id"].config_source,
            found["node.id"].read_only,
        ) == ("1", STATIC, True)
        assert found["log.segment.bytes"].read_only is False

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
        (8, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
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


def test_a_group_has_its_own_settings_or_its_broker_s() -> None:
    """The chain is that of Apache Kafka 4.3, whose names for the two differ."""

    async def main(node: FakeNode) -> None:
        key, of_broker = "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
        default, file = (of_broker, "1000", DEFAULT), (of_broker, "2000", STATIC)
        one = await setting(node, GROUP, "readers", key)
        assert (one.value, one.config_source, synonyms(one)) == ("2000", STATIC, [file, default])
        assert (one.config_type, one.read_only, one.is_sensitive, bool(one.documentation)) == (
            3,
            False,
            False,
            True,
        )
        assert await alter(node, BROKER, "", of_broker, "4000") == 0
        every = (of_broker, "4000", DYNAMIC_DEFAULT)
        one = await setting(node, GROUP, "readers", key)
        assert (one.value, one.config_source, synonyms(one)) == (
            "4000",
            DYNAMIC_DEFAULT,
            [every, file, default],
        )
        assert await alter(node, GROUP, "readers", key, "3000") == 0
        one = await setting(node, GROUP, "readers", key)
        assert (one.value, one.config_source) == ("3000", DYNAMIC_GROUP)
        assert synonyms(one) == [(key, "3000", DYNAMIC_GROUP), every, file, default]
        names = [one.name for one in (await describe(node, GROUP, "others")).configs]
        assert names == [key, "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"]
        listed = await answer(node, 74, 1, ListConfigResourcesRequest(resource_types=(GROUP,)))
        assert [(one.resource_name, one.resource_type) for one in listed.config_resources] == [
            ("readers", GROUP)
        ]

    run(main, group_consumer_assignment_interval_ms="2000")


def test_alter_configs_replaces_and_validates() -> None:
    async def main(node: FakeNode) -> None:
        node.create("t", retention_ms="1000")
        resource = AlterConfigsRequest.Resource
        asked = resource(
            resource_type=TOPIC,
            resource_name="t",
            configs=(resource.Config(name="segment.bytes", value="2097152"),),
        )
        only_checked = AlterConfigsRequest(resources=(asked,), validate_only=True)
        assert (await answer(node, 33, 2, only_checked)).responses[0].error_code == 0
        assert node.image.topic_configs("t") == {"retention.ms": "1000"}
        assert (await answer(node, 33, 2, AlterConfigsRequest(resources=(asked,)))).responses[
            0
        ].error_code == 0
        assert node.image.topic_configs("t") == {"segment.bytes": "2097152"}
        assert await alter(node, TOPIC, "t", "retention.ms", "soon") == ErrorCode.INVALID_CONFIG

    run(main)


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, (), []),
        (1, (), [("a", TOPIC), ("b", TOPIC), ("1", BROKER)]),
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
        assert [
            (one.resource_name, one.resource_type) for one in response.config_resources
        ] == expected
        refused = await answer(node, 74, 1, ListConfigResourcesRequest(resource_types=(3,)))
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    run(main)
