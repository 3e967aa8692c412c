"""Topics that a broker creates on demand: internal topics as coordinators need them, the topics of
clients with the defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.config import group_settings as settings
from penstock.config.node import NodeConfig

if TYPE_CHECKING:
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

# Group coordinators keep their state in it.
OFFSETS_TOPIC = "__consumer_offsets"


def auto_created(config: NodeConfig, names: Iterable[str]) -> CreateTopicsRequest:
    """Return the request that creates these topics. An internal topic is created as coordinators
    need it even if a client asks for it first."""
    # Imported on first use, as handlers are: a node must start quickly.
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

    topics = (
        _offsets_topic(config)
        if name == OFFSETS_TOPIC
        else CreateTopicsRequest.Topic(name=name, num_partitions=-1, replication_factor=-1)
        for name in dict.fromkeys(names)
    )
    return CreateTopicsRequest(topics=tuple(topics))


def _offsets_topic(config: NodeConfig) -> CreateTopicsRequest.Topic:
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config[settings.OFFSETS_TOPIC_SEGMENT_BYTES]),
    }
    return CreateTopicsRequest.Topic(
        name=OFFSETS_TOPIC,
        num_partitions=config[settings.OFFSETS_TOPIC_NUM_PARTITIONS],
        replication_factor=config[settings.OFFSETS_TOPIC_REPLICATION_FACTOR],
        configs=tuple(
            CreateTopicsRequest.Topic.Config(name=name, value=value)
            for name, value in configs.items()
        ),
    )
