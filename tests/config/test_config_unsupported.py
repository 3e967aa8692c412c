"""Settings of Kafka that are not supported: refused with file, line and reason."""

from __future__ import annotations

import pytest

from tests.config.node_examples import COMBINED, problems


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            "zookeeper.connect=zk:2181",
            "zookeeper.connect is not supported: like Kafka since 4.0, Penstock stores metadata",
        ),
        (
            "ssl.engine.factory.class=org.A",
            "ssl.engine.factory.class is not supported: it names a Java class",
        ),
        (
            "sasl.kerberos.service.name=kafka",
            "sasl.kerberos.service.name is not supported: Kerberos (GSSAPI) is not supported",
        ),
        (
            "listener.name.a.ssl.key=k",
            "listener.name.a.ssl.key is not supported: this setting per listener",
        ),
        (
            "remote.log.storage.system.enable=TRUE",
            "remote.log.storage.system.enable is not supported",
        ),
    ],
)
def test_unsupported_setting_is_refused(setting: str, reason: str) -> None:
    name, _, value = setting.partition("=")
    (error,) = problems(COMBINED, **{name: value})
    assert error.startswith(f"server.properties:5: {reason}")


def test_error_for_zookeeper_settings_names_the_settings_of_kraft() -> None:
    errors = problems(
        {
            "broker.id": "0",
            "zookeeper.connect": "localhost:2181",
            "zookeeper.connection.timeout.ms": "18000",
        }
    )
    assert (
        "Use process.roles, node.id, controller.listener.names and controller.quorum.voters"
        in errors[2]
    )
    assert [problem.split(": ")[0] for problem in errors] == [
        "server.properties",
        "server.properties",
        "server.properties:2",
        "server.properties:3",
    ]
