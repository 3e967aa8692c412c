"""Configurations of nodes for tests."""

from __future__ import annotations

import pytest

from penstock.config.node import ConfigError, NodeConfig, read_node_config

# The settings of config/server.properties of Kafka 4, with their values.
STOCK = """
# Identity
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093

# Listeners
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

# Logs
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "C",
    "listeners": "C://:9093",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "controller.listener.names": "C",
    "controller.quorum.voters": "1@one:9093,2@two:9093,3@three:9093",
}


def read(settings: dict[str, str], **changes: str | None) -> NodeConfig:
    """Read settings with changes, whose names have _ instead of dots; None removes a setting."""
    merged = settings | {
        name.replace("_", "."): value for name, value in changes.items() if value is not None
    }
    gone = {name.replace("_", ".") for name, value in changes.items() if value is None}
    text = "".join(f"{name}={value}\n" for name, value in merged.items() if name not in gone)
    return read_node_config(text.encode(), "server.properties")


def problems(settings: dict[str, str], **changes: str | None) -> tuple[str, ...]:
    """Return the problems of an invalid configuration."""
    with pytest.raises(ConfigError) as caught:
        read(settings, **changes)
    return caught.value.problems
