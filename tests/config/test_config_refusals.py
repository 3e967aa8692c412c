"""Invalid configurations of nodes: each error has file, line and reason."""

from __future__ import annotations

import pytest

from tests.config.node_examples import BROKER, COMBINED, CONTROLLER, problems


@pytest.mark.parametrize(
    ("base", "changes", "line", "start"),
    [
        (
            COMBINED,
            {"process.roles": None},
            0,
            "Missing required configuration process.roles which has no default value.",
        ),
        (
            COMBINED,
            {"process.roles": "broker,worker"},
            1,
            "Invalid value broker,worker for configuration process.roles",
        ),
        (
            COMBINED,
            {"process.roles": ""},
            1,
            "Invalid value  for configuration process.roles: Configuration 'process.roles' must",
        ),
        (COMBINED, {"node.id": None}, 0, "Missing required configuration node.id"),
        (
            COMBINED,
            {"node.id": "-1"},
            2,
            "Invalid value -1 for configuration node.id: Value must be at least 0",
        ),
        (
            COMBINED,
            {"node.id": None, "broker.id": "-1"},
            0,
            "Missing required configuration node.id",
        ),
        (
            COMBINED,
            {"broker.id": "2"},
            5,
            "You must set `node.id` to the same value as `broker.id`",
        ),
        (
            COMBINED,
            {"controller.listener.names": None},
            0,
            "Missing required configuration controller.listener.names",
        ),
        (
            COMBINED,
            {"max.connections.per.ip": "0"},
            5,
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides",
        ),
        (
            COMBINED,
            {"max.connections.per.ip.overrides": "127.0.0.1:1,somewhere:2"},
            5,
            "'somewhere:2' is not in the form address:count, with an IP address",
        ),
        (
            COMBINED,
            {"max.connections.per.ip.overrides": "127.0.0.1:many"},
            5,
            "'many' in '127.0.0.1:many' is not a number",
        ),
        (
            COMBINED,
            {"listener.name.plaintext.max.connections": "-1"},
            5,
            "Invalid value -1 for configuration listener.name.plaintext.max.connections: Value",
        ),
        (
            COMBINED,
            {"controller.listener.names": "CONTROLLER,C"},
            3,
            "controller.listener.names must only contain values appearing in",
        ),
        (
            COMBINED,
            {"listeners": "CONTROLLER://:9093"},
            4,
            "There must be at least one broker advertised listener. Perhaps all",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT:9092"},
            4,
            "Unable to parse PLAINTEXT:9092 to a broker endpoint",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:99999,CONTROLLER://:1"},
            4,
            "Unable to parse PLAINTEXT://:99999 to a broker",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://::1:9092"},
            4,
            "Unable to parse PLAINTEXT://::1:9092 to a broker endpoint",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:1,plaintext://:2"},
            4,
            "Each listener must have a different name",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://:1,CONTROLLER://:1"},
            4,
            "Each listener must have a different port",
        ),
        (
            COMBINED,
            {"listeners": "INSIDE://:1,CONTROLLER://:2"},
            4,
            "No security protocol defined for listener INSIDE",
        ),
        (
            COMBINED,
            {"listeners": "SSL://:1,CONTROLLER://:2", "security.inter.broker.protocol": "SSL"},
            0,
            "listener SSL has security protocol SSL and no key store: set ssl.keystore.location",
        ),
        (
            COMBINED,
            {
                "listeners": "SSL://:1,CONTROLLER://:2",
                "security.inter.broker.protocol": "SSL",
                "listener.name.ssl.ssl.enabled.protocols": "TLSv1.1",
            },
            6,
            "TLSv1.1 is not a version of TLS that Penstock supports",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"},
            0,
            "sasl.enabled.mechanisms: GSSAPI is not a supported mechanism. Kerberos (GSSAPI)",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT:TLS"},
            5,
            "Invalid security protocol `TLS` defined in",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT"},
            5,
            "'PLAINTEXT' is not in the form NAME:PROTOCOL",
        ),
        (
            COMBINED,
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            5,
            "advertised.listeners cannot use the nonroutable",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://0.0.0.0:1,CONTROLLER://:2"},
            0,
            "advertised.listeners cannot use the nonroutable",
        ),
        (
            COMBINED,
            {"advertised.listeners": "CONTROLLER://a:1"},
            5,
            "There must be at least one broker advertised listener",
        ),
        (
            COMBINED,
            {
                "advertised.listeners": "X://a:1",
                "listener.security.protocol.map": (
                    "X:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
            },
            5,
            (
                "advertised.listeners listener names must be equal to or a subset of the ones "
                "defined "
                "in listeners"
            ),
        ),
        (COMBINED, {"offsets.topic.compression.codec": "5"}, 5, "Unknown compression type id: 5"),
        (
            COMBINED,
            {"group.consumer.session.timeout.ms": "44999"},
            5,
            "group.consumer.session.timeout.ms must be greater than or equal to",
        ),
        (
            COMBINED,
            {"group.consumer.max.heartbeat.interval.ms": "4999"},
            5,
            "group.consumer.max.heartbeat.interval.ms must be greater than",
        ),
        (
            COMBINED,
            {"group.consumer.migration.policy": "sometimes"},
            5,
            "Invalid value sometimes for configuration group.consumer.migration",
        ),
        (
            COMBINED,
            {"inter.broker.listener.name": "CONTROLLER"},
            5,
            "inter.broker.listener.name must be a listener name defined",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "2@b:1"},
            5,
            "If process.roles contains the 'controller' role, the node id 1 must",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "b:1"},
            5,
            "Invalid configuration value for controller.quorum.voters: b:1",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "one@b:1"},
            5,
            "Failed to parse voter ID as an integer from one in one@b:1",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "1@b"},
            5,
            "Failed to parse host name and port from entry 1@b",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "1@:9093"},
            5,
            "Failed to parse host name and port from entry 1@:9093",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "1@b:0"},
            5,
            "Failed to parse host name and port from entry 1@b:0",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "1@0.0.0.0:1"},
            5,
            "Host string (0.0.0.0) is not routeable",
        ),
        (
            COMBINED,
            {"controller.quorum.voters": "1@a:1,1@b:1"},
            5,
            "voters must have distinct ids",
        ),
        (
            COMBINED,
            {"controller.quorum.bootstrap.servers": "a"},
            5,
            "Failed to parse host name and port from entry a",
        ),
        (
            BROKER,
            {"controller.quorum.voters": None},
            0,
            "If using process.roles, either controller.quorum.bootstrap.servers must",
        ),
        (
            BROKER,
            {"node.id": "3"},
            4,
            "If process.roles contains just the 'broker' role, the node id 3 must not be included",
        ),
        (
            BROKER,
            {"listeners": "PLAINTEXT://:1,C://:2"},
            3,
            "controller.listener.names must not contain a value appearing",
        ),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            3,
            (
                "Controller listener with name C defined in controller.listener.names not found in "
                "listener.security"
            ),
        ),
        (
            CONTROLLER,
            {"listeners": "C://:1,PLAINTEXT://:2"},
            4,
            "The listeners config must only contain KRaft controller listeners",
        ),
        (
            COMBINED,
            {"log.dirs": ""},
            5,
            "At least one log directory must be defined via log.dirs or log.dir.",
        ),
        (COMBINED, {"log.dirs": "/a,/a/"}, 5, "log directories must be distinct: /a,/a/"),
        (COMBINED, {"metadata.log.dir": ""}, 5, "metadata.log.dir is empty"),
        (
            COMBINED,
            {"log.retention.hours": "0"},
            5,
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            COMBINED,
            {"log.roll.ms": "0"},
            5,
            "Invalid value 0 for configuration segment.ms, for which this is the default: Value",
        ),
        (
            COMBINED,
            {"log.flush.interval.ms": "-1"},
            5,
            "Invalid value -1 for configuration flush.ms, for which this is the default",
        ),
        (
            COMBINED,
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            5,
            "log.cleaner.min.compaction.lag.ms (2) must not exceed "
            "log.cleaner.max.compaction.lag.ms (1)",
        ),
        (
            COMBINED,
            {"num.io.threads": "0"},
            5,
            "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        ),
    ],
)
def test_error_has_file_line_and_reason(
    base: dict[str, str], changes: dict[str, str | None], line: int, start: str
) -> None:
    errors = problems(base, **changes)
    assert len(errors) == 1, errors
    assert errors[0].startswith(f"server.properties{f':{line}' if line else ''}: {start}")


def test_all_problems_are_reported_together() -> None:
    errors = problems(
        COMBINED,
        num_io_threads="no",
        log_dirs="/a,/a",
        ssl_client_auth="maybe",
        controller_quorum_voters="5@a:1",
        log_retention_ms="0",
    )
    assert [problem.split(": ")[0] for problem in errors] == [
        f"server.properties:{line}" for line in (5, 6, 7, 8, 9)
    ]


def test_controller_without_controller_listeners_has_two_problems() -> None:
    errors = problems(CONTROLLER, listeners=None)
    assert [problem.split(" must")[0] for problem in errors] == [
        "server.properties: The listeners config",
        "server.properties:3: controller.listener.names",
    ]
