"""kafka-configs.sh against a real broker, with the output of Apache Kafka 4.3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.kafka import configs, topics
from tests.cli.kafka_tool import Tool


@pytest.fixture
def kafka_topics(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(topics.run, "--bootstrap-server", bootstrap, *words)


@pytest.fixture
def kafka_configs(tool: Tool, bootstrap: str) -> Tool:
    return lambda *words: tool(configs.run, "--bootstrap-server", bootstrap, *words)


def test_configs_of_a_topic(kafka_topics: Tool, kafka_configs: Tool, tmp_path: Path) -> None:
    kafka_topics("--create", "--topic", "set")
    of_topic = ("--entity-type", "topics", "--entity-name", "set")
    done = (0, "Completed updating config for topic set.\n", "")
    assert kafka_configs("--describe", *of_topic) == (0, "Dynamic configs for topic set are:\n", "")
    assert (
        kafka_configs(
            "--alter",
            *of_topic,
            "--add-config",
            "retention.ms=1000,cleanup.policy=[compact,delete]",
        )
        == done
    )
    assert kafka_configs("--describe", "--topic", "set") == (
        0,
        "Dynamic configs for topic set are:\n"
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=1000 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}\n",
        "",
    )
    assert (
        kafka_configs("--alter", *of_topic, "--delete-config", "retention.ms, cleanup.policy")
        == done
    )
    file = tmp_path / "add.properties"
    file.write_text("retention.ms = 5000\n")
    assert kafka_configs("--alter", *of_topic, "--add-config-file", str(file)) == done
    assert (
        "  retention.ms=5000 sensitive=false" in kafka_configs("--describe", *of_topic, "--all")[1]
    )
    assert kafka_configs("--describe", "--topic", "nope") == (
        0,
        "The topic 'nope' doesn't exist and doesn't have dynamic config.\n",
        "",
    )


def test_configs_of_brokers(kafka_configs: Tool) -> None:
    name = "message.max.bytes"
    assert kafka_configs("--alter", "--broker", "1", "--add-config", f"{name}=2000000") == (
        0,
        "Completed updating config for broker 1.\n",
        "",
    )
    done = (0, "Completed updating default config for brokers in the cluster.\n", "")
    assert kafka_configs("--alter", "--broker-defaults", "--add-config", f"{name}=2000001") == done
    code, out, err = kafka_configs("--describe", "--entity-type", "brokers")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [
        "Dynamic configs for broker 1 are:",
        f"  {name}=2000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{name}=2000000, "
        f"DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=2000001, DEFAULT_CONFIG:{name}=1048588}}",
        "Default configs for brokers in the cluster are:",
    ]
    assert (
        f"  {name}=2000001 sensitive=false "
        f"synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=2000001}}"
    ) in out.splitlines()
    assert (
        kafka_configs(
            "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", name
        )
        == done
    )
    assert kafka_configs("--alter", "--broker", "1", "--delete-config", name)[0] == 0


def test_loggers_of_a_broker(kafka_configs: Tool) -> None:
    name = "penstock.node.replication.replicas"
    done = (0, "Completed updating config for broker-logger 1.\n", "")
    assert kafka_configs("--alter", "--broker-logger", "1", "--add-config", f"{name}=DEBUG") == done
    code, out, err = kafka_configs(
        "--describe", "--entity-type", "broker-loggers", "--entity-name", "1"
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Dynamic configs for broker-logger 1 are:"
    assert f"  {name}=DEBUG sensitive=false synonyms={{}}" in lines
    (root,) = [line.split()[0].removeprefix("root=") for line in lines if " root=" in line]
    assert kafka_configs("--alter", "--broker-logger", "1", "--delete-config", name) == done
    _code, out, _err = kafka_configs("--describe", "--broker-logger", "1")
    assert f"  {name}={root} sensitive=false synonyms={{}}" in out.splitlines()
    code, _out, err = kafka_configs(
        "--alter", "--broker-logger", "1", "--add-config", "no.such.logger=INFO"
    )
    assert code == 1
    assert "Invalid broker logger(s): no.such.logger" in err
    code, _out, err = kafka_configs("--describe", "--entity-type", "broker-loggers")
    assert code == 1
    assert "An entity name must be specified with --describe of broker-loggers" in err


def test_configs_of_a_group(kafka_configs: Tool) -> None:
    name, broker = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    of_group = ("--entity-type", "groups", "--entity-name", "readers")
    assert kafka_configs("--describe", *of_group) == (
        0,
        "The group 'readers' doesn't exist and doesn't have dynamic config.\n",
        "",
    )
    done = (0, "Completed updating config for group readers.\n", "")
    assert kafka_configs("--alter", *of_group, "--add-config", f"{name}=50000") == done
    described = (
        0,
        "Dynamic configs for group readers are:\n"
        f"  {name}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{name}=50000, "
        f"DEFAULT_CONFIG:{broker}=45000}}\n",
        "",
    )
    assert kafka_configs("--describe", "--group", "readers") == described
    assert kafka_configs("--describe", "--entity-type", "groups") == described
    code, out, err = kafka_configs("--describe", *of_group, "--all")
    interval = (
        "consumer.heartbeat.interval.ms=5000 sensitive=false "
        "synonyms={DEFAULT_CONFIG:group.consumer.heartbeat.interval.ms=5000}"
    )
    assert (code, out.splitlines()[0], err) == (0, "All configs for group readers are:", "")
    assert f"  {interval}" in out.splitlines()
    assert kafka_configs("--alter", *of_group, "--delete-config", name) == done
    assert kafka_configs("--describe", "--entity-type", "groups") == (0, "", "")


def test_a_group_config_that_the_broker_refuses(kafka_configs: Tool) -> None:
    code, out, err = kafka_configs(
        "--alter", "--group", "readers", "--add-config", "consumer.session.timeout.ms=1"
    )
    assert (code, out) == (1, "")
    assert err.splitlines()[1] == (
        "java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        "consumer.session.timeout.ms must be greater than or equal to "
        "group.consumer.min.session.timeout.ms"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--describe"], "At least one entity type must be specified"),
        (["--topic", "t"], "Command must include exactly one action: --describe, --alter"),
        (
            ["--alter", "--topic", "t"],
            (
                "At least one of --add-config, --add-config-file, or --delete-config must be "
                "specified with --alter"
            ),
        ),
        (
            ["--describe", "--broker", "x"],
            "The entity name for brokers must be a valid integer broker id, but it is: x",
        ),
        (
            ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
            "An entity name must be specified with --alter of topics",
        ),
        (
            ["--alter", "--entity-type", "groups", "--entity-default", "--add-config", "a=b"],
            "An entity name must be specified with --alter of groups",
        ),
        (
            ["--describe", "--entity-type", "groups", "--entity-default"],
            "--entity-default must not be specified with --describe of groups",
        ),
        (
            ["--alter", "--topic", "t", "--add-config", "retention.ms"],
            "requirement failed: Invalid entity config: all configs to be added must be in the "
            'format "key=val" or  "key=[val1,val2]" '
            "to group values which contain commas.",
        ),
        (
            ["--describe", "--entity-type", "foos"],
            "Invalid entity type foos, the entity type must be one of topics, clients, users, "
            "brokers, ips, client-metrics, groups, "
            "broker-loggers with a --bootstrap-server or --bootstrap-controller argument",
        ),
    ],
)
def test_invalid_arguments_print_kafkas_errors(
    kafka_configs: Tool, words: list[str], reason: str
) -> None:
    code, out, err = kafka_configs(*words)
    assert (code, out, err.splitlines()[0]) == (1, "", reason)


def test_a_topic_config_that_the_broker_refuses(
    kafka_topics: Tool, kafka_configs: Tool, bootstrap: str
) -> None:
    kafka_topics("--create", "--topic", "picky")
    words = ("--alter", "--topic", "picky", "--add-config", "retention.ms=abc")
    code, out, err = kafka_configs(*words)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        (
            f"Error while executing config command with args '--bootstrap-server {bootstrap} "
            f"{' '.join(words)}'"
        ),
        "java.util.concurrent.ExecutionException: "
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ]


def test_add_config_parses_lists_in_brackets() -> None:
    assert configs.parse_added("a=1,b=[x,y=z],c=") == {"a": "1", "b": "x,y=z", "c": ""}
