"""The topic in which coordinators of groups keep what they know: made when it is first needed, by the controller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from penstock.config import group_settings as settings
from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.node.controller import NodeController
    from penstock.node.node import Node
    from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

OFFSETS_TOPIC = "__consumer_offsets"

logger = logging.getLogger(__name__)


async def create_offsets_topic(node: Node) -> None:
    """Returns when this node knows it. KafkaError where it cannot be made, because there are too few brokers, say."""
    from penstock.controller.create_topics import create_topics
    from penstock.protocol.messages.create_topics import CreateTopicsRequest

    def decide(controller: NodeController, request: CreateTopicsRequest) -> Awaitable[CreateTopicsResponse]:
        return controller.decide(lambda image: create_topics(image, request, controller.context))

    response = await node.ask_controller(CreateTopicsRequest(topics=(_wanted(node.config),)), decide, version=7)
    result = response.topics[0]
    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        logger.warning("%s cannot be created: %s", OFFSETS_TOPIC, result.error_message)
        raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
    await node.wait_topics([OFFSETS_TOPIC])


def _wanted(config: NodeConfig) -> CreateTopicsRequest.Topic:
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
        configs=tuple(CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in configs.items()),
    )
