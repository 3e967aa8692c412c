"""NodeConfig: the stock file of Kafka, derived values, overrides and warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.group_settings import OFFSETS_TOPIC_REPLICATION_FACTOR
from penstock.config.listeners import Listener, SecurityProtocol
from penstock.config.log_settings import LOG_CLEANUP_POLICY, LOG_RETENTION_MS, LOG_SEGMENT_BYTES
from penstock.config.node import ConfigError, read_node_config
from penstock.config.node_settings import BROKER_ID, NODE_ID, NUM_IO_THREADS
from penstock.config.quorum import Address, Voter
from penstock.config.topic import log_config
from penstock.ids import NodeId
from tests.config.node_examples import BROKER, COMBINED, CONTROLLER, STOCK, read


def test_stock_file_of_kafka_reads_without_warnings() -> None:
    config = read_node_config(STOCK.encode(), "server.properties")
    assert config.warnings == ()
    assert config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.is_own_quorum
    assert config.voters == ()
    assert config.bootstrap_servers == (Address("localhost", 9093),)
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.listeners == (
        Listener("PLAINTEXT", None, 9092, SecurityProtocol.PLAINTEXT),
        Listener("CONTROLLER", None, 9093, SecurityProtocol.PLAINTEXT),
    )
    assert [str(listener) for listener in config.advertised_broker_listeners] == [
        "PLAINTEXT://localhost:9092"
    ]
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert log_config(config, {}).segment_bytes == 1 << 30


def test_values_are_typed_and_have_defaults() -> None:
    config = read(COMBINED, log_segment_bytes="2097152", log_cleanup_policy="compact, delete")
    segment_bytes: int = config[LOG_SEGMENT_BYTES]
    retention_ms: int | None = config[LOG_RETENTION_MS]
    policy: tuple[str, ...] = config[LOG_CLEANUP_POLICY]
    assert (segment_bytes, retention_ms, policy) == (2_097_152, None, ("compact", "delete"))
    assert (config[NUM_IO_THREADS], config[OFFSETS_TOPIC_REPLICATION_FACTOR]) == (8, 3)
    assert config.is_set(LOG_SEGMENT_BYTES)
    assert not config.is_set(NUM_IO_THREADS)


def test_overrides_take_precedence_and_appear_in_errors() -> None:
    config = read_node_config(
        STOCK.encode(), "server.properties", {"node.id": "7", "num.io.threads": "2"}
    )
    assert (config.node_id, config[NUM_IO_THREADS]) == (7, 2)
    with pytest.raises(ConfigError, match=r"^--override num\.io\.threads: Invalid value many"):
        read_node_config(STOCK.encode(), "server.properties", {"num.io.threads": "many"})


def test_broker_id_is_an_alias_of_node_id() -> None:
    for config in (
        read(COMBINED, node_id=None, broker_id="3"),
        read(COMBINED, node_id="3", broker_id="3"),
        read(COMBINED, node_id="3"),
    ):
        assert (config.node_id, config[NODE_ID], config[BROKER_ID]) == (3, 3, 3)


def test_log_directories() -> None:
    assert read(COMBINED).log_dirs == ("/tmp/kafka-logs",)
    assert read(COMBINED, log_dir="/a").directories == ("/a",)
    assert read(COMBINED, log_dir="/a", log_dirs="/b, /c").directories == ("/b", "/c")
    assert read(COMBINED, log_dirs="/b,/c").metadata_log_dir == "/b"
    assert read(COMBINED, log_dirs="/b,/c", metadata_log_dir="/m").directories == ("/b", "/c", "/m")
    assert read(COMBINED, log_dirs="/b,/c", metadata_log_dir="/c/").directories == ("/b", "/c")


def test_ipv4_and_ipv6_listeners_may_share_a_port() -> None:
    config = read(
        COMBINED,
        listeners="four://127.0.0.1:9092,six://[::1]:9092,controller://:0",
        listener_security_protocol_map="FOUR:PLAINTEXT,six:plaintext,Controller:PLAINTEXT",
        inter_broker_listener_name="six",
    )
    assert [str(listener) for listener in config.listeners] == [
        "FOUR://127.0.0.1:9092",
        "SIX://[::1]:9092",
        "CONTROLLER://:0",
    ]
    assert config.controller_listeners == (
        Listener("CONTROLLER", None, 0, SecurityProtocol.PLAINTEXT),
    )
    assert [listener.name for listener in config.broker_listeners] == ["FOUR", "SIX"]


def test_voters() -> None:
    config = read(COMBINED, controller_quorum_voters="1@localhost:9093, 2@[::1]:9094")
    assert config.voters == (
        Voter(NodeId(1), Address("localhost", 9093)),
        Voter(NodeId(2), Address("::1", 9094)),
    )
    assert not config.is_own_quorum
    assert [str(voter) for voter in config.voters] == ["1@localhost:9093", "2@[::1]:9094"]


def test_separate_broker_and_controller() -> None:
    broker = read(BROKER)
    assert (broker.is_broker, broker.is_controller, broker.is_own_quorum) == (True, False, False)
    assert broker.controller_listeners == ()
    controller = read(CONTROLLER)
    assert (controller.is_broker, controller.is_controller, controller.is_own_quorum) == (
        False,
        True,
        True,
    )
    assert controller.broker_listeners == ()
    assert (
        read(
            BROKER,
            controller_quorum_voters=None,
            controller_quorum_bootstrap_servers="one:9093,two:9093",
        ).voters
        == ()
    )


def test_malformed_file_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"^f:2: malformed"):
        read_node_config(b"node.id=1\nbroker.rack=\\u1\n", "f")


@pytest.mark.parametrize(
    ("name", "value", "warning"),
    [
        (
            "log.retention.hour",
            "1",
            (
                "server.properties:5: unknown setting log.retention.hour is ignored. Did you "
                "mean "
                "log.retention.hours?"
            ),
        ),
        ("my.own.thing", "1", "server.properties:5: unknown setting my.own.thing is ignored."),
    ],
)
def test_unknown_name_is_a_warning_with_the_closest_known_one(
    name: str, value: str, warning: str
) -> None:
    assert read(COMBINED | {name: value}).warnings == (warning,)


def test_unsupported_settings_without_effect_are_accepted() -> None:
    idle = {
        "authorizer.class.name": "",
        "remote.log.storage.system.enable": "false",
        "security.inter.broker.protocol": "PLAINTEXT",
    }
    assert read(COMBINED | idle).warnings == ()


def test_repeated_setting_is_a_warning() -> None:
    config = read_node_config(STOCK.encode() + b"node.id=2\n", "f")
    assert config.node_id == 2
    assert len(config.warnings) == 1


names = st.sampled_from(
    [
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "log.dirs",
        "node.id",
    ]
)


@given(st.dictionaries(names, st.text(st.sampled_from("aA1@:/,.[]-% ")), max_size=3))
def test_any_setting_is_accepted_or_refused_with_its_line(settings: dict[str, str]) -> None:
    try:
        config = read(COMBINED | settings)
    except ConfigError as error:
        found: tuple[str, ...] = error.problems
    else:
        found = ()
        assert config.listeners
        assert config.log_dirs
    assert all(problem.startswith("server.properties:") for problem in found)
