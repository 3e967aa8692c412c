"""Settings of SASL, and Kafka's rules for values per listener and mechanism."""

from __future__ import annotations

import pytest

from penstock.config.node import ConfigError, NodeConfig, read_node_config
from penstock.config.sasl_settings import (
    SASL_JAAS_CONFIG,
    enabled_mechanisms,
    jaas_text,
    max_reauth_ms,
    mechanism_setting,
)
from penstock.config.settings import find_setting

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CLIENTS://:9092,BETWEEN://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BETWEEN:PLAINTEXT,"
    "CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BETWEEN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} user_alice=secret;",
}


def read_settings(settings: dict[str, str | None] | dict[str, str]) -> NodeConfig:
    text = "\n".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    return read_node_config(text.encode(), "server.properties")


def test_a_login_is_that_of_its_listener_and_mechanism() -> None:
    config = read_settings(BASE)
    assert jaas_text(config, "CLIENTS", "PLAIN") == f"{PLAIN} user_alice=secret;"
    assert jaas_text(config, "CLIENTS", "SCRAM-SHA-512") is None
    assert jaas_text(config, "BETWEEN", "PLAIN") is None


def test_a_listener_may_have_its_own_mechanisms_and_sessions() -> None:
    config = read_settings(
        BASE
        | {
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
            "connections.max.reauth.ms": "3",
            "listener.name.clients.connections.max.reauth.ms": "2",
            "listener.name.clients.plain.connections.max.reauth.ms": "1",
        }
    )
    assert enabled_mechanisms(config, "CLIENTS") == ("PLAIN",)
    assert enabled_mechanisms(config, "BETWEEN") == ("PLAIN", "SCRAM-SHA-512")
    assert max_reauth_ms(config, "CLIENTS", "PLAIN") == 1
    assert max_reauth_ms(config, "CLIENTS", "SCRAM-SHA-512") == 2
    assert max_reauth_ms(config, "BETWEEN", "PLAIN") == 3


def test_a_login_is_secret() -> None:
    setting = mechanism_setting("CLIENTS", "SCRAM-SHA-256", SASL_JAAS_CONFIG)
    assert setting.name == "listener.name.clients.scram-sha-256.sasl.jaas.config"
    found = find_setting(setting.name)
    assert found is not None
    assert found.sensitive


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos"),
        ({"sasl.enabled.mechanisms": None}, "Kerberos"),
        ({"sasl.enabled.mechanisms": "PLAIN,CRAM-MD5"}, "CRAM-MD5 is not a supported mechanism"),
        (
            {"listener.name.clients.plain.sasl.jaas.config": None},
            "listener.name.clients.plain.sasl.jaas.config is not set",
        ),
        ({"sasl.jaas.config": f"{PLAIN};"}, "must be prefixed"),
        (
            {"inter.broker.listener.name": "CLIENTS"},
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms",
        ),
        (
            {
                "inter.broker.listener.name": "CLIENTS",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            },
            "listener.name.clients.scram-sha-512.sasl.jaas.config is not set",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BETWEEN:PLAINTEXT,"
                "CONTROLLER:SASL_PLAINTEXT",
                "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            },
            "sasl.mechanism.controller.protocol: GSSAPI is not a supported mechanism",
        ),
        ({"sasl.server.max.receive.size": "0"}, "must be positive"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "Only one of"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, str | None], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        read_settings(BASE | changes)
    assert "secret" not in str(raised.value)


def test_brokers_may_use_the_listener_of_a_security_protocol() -> None:
    config = read_settings(
        BASE
        | {
            "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": None,
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} username=a;",
        }
    )
    assert config.inter_broker_listener_name == "SASL_PLAINTEXT"
    (listener,) = config.broker_listeners
    assert listener.security_protocol.is_sasl
    assert listener.security_protocol.number == 2
