"""Topics that a broker creates on demand: internal topics as coordinators need them, the topics of
clients with the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.config import group_settings, transaction_settings
from penstock.config.node import NodeConfig

if TYPE_CHECKING:
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

# Group coordinators keep their state in it.
OFFSETS_TOPIC = "__consumer_offsets"
# Transaction coordinators keep their state in it.
TRANSACTION_TOPIC = "__transaction_state"
# Only coordinators write to these topics; clients may read them.
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})


def auto_created(config: NodeConfig, names: Iterable[str]) -> CreateTopicsRequest:
    """Return the request that creates these topics. An internal topic is created as coordinators
    need it even if a client asks for it first."""
    # Imported on first use, as handlers are: a node must start quickly.
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

    return CreateTopicsRequest(topics=tuple(_topic(config, name) for name in dict.fromkeys(names)))


def _topic(config: NodeConfig, name: str) -> CreateTopicsRequest.Topic:
    if name == OFFSETS_TOPIC:
        return _new_topic(
            name,
            config[group_settings.OFFSETS_TOPIC_NUM_PARTITIONS],
            config[group_settings.OFFSETS_TOPIC_REPLICATION_FACTOR],
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config[group_settings.OFFSETS_TOPIC_SEGMENT_BYTES]),
            },
        )
    if name == TRANSACTION_TOPIC:
        return _new_topic(
            name,
            config[transaction_settings.STATE_LOG_NUM_PARTITIONS],
            config[transaction_settings.STATE_LOG_REPLICATION_FACTOR],
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config[transaction_settings.STATE_LOG_MIN_ISR]),
                "segment.bytes": str(config[transaction_settings.STATE_LOG_SEGMENT_BYTES]),
                "unclean.leader.election.enable": "false",
            },
        )
    return _new_topic(name, -1, -1, {})


def _new_topic(
    name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> CreateTopicsRequest.Topic:
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=tuple(
            CreateTopicsRequest.Topic.Config(name=config, value=value)
            for config, value in configs.items()
        ),
    )
