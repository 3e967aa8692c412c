"""Images of clusters for the tests of the controller's decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import SUPPORTED_FEATURES, bootstrap_records
from penstock.metadata.image import NO_LEADER, TOPIC, BrokerImage, MetadataImage, PartitionState
from penstock.metadata.snapshot import partition_record, register_broker_record
from penstock.protocol.internal.metadata_settings import ConfigRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from tests.config.node_examples import COMBINED, read

FIRST_UUID = 1_000


def broker(
    broker_id: int,
    *,
    rack: str | None = None,
    fenced: bool = False,
    shutting_down: bool = False,
    directories: int = 1,
) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=broker_id + 100,
        incarnation_id=UUID(int=broker_id + 500),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        directories=tuple(directory(broker_id, index) for index in range(directories)),
        features=SUPPORTED_FEATURES,
    )


def directory(broker_id: int, index: int = 0) -> UUID:
    return UUID(int=(broker_id + 1) * 10_000 + index)


def cluster(*brokers: BrokerImage) -> MetadataImage:
    """Return a cluster with these brokers, by default broker 1."""
    image, _delta = MetadataImage.empty().replay(
        map(register_broker_record, brokers or (broker(1),)), 9
    )
    return image


def running(*brokers: BrokerImage) -> MetadataImage:
    """Return a cluster with the feature levels of a new one, ELR included."""
    return cluster(*brokers).replay(bootstrap_records(context()), 19)[0]


def partition(
    *replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None, **more: Any
) -> PartitionState:
    """Return a partition, by default with all replicas in sync and led by the first. Each
    replica is in the first directory of its broker."""
    in_sync = replicas if isr is None else isr
    first = next(iter(in_sync), NO_LEADER) if leader is None else leader
    directories = tuple(map(directory, replicas))
    return replace(
        PartitionState(replicas=replicas, isr=in_sync, leader=first, directories=directories),
        **more,
    )


TOPIC_ID = UUID(int=900)


def with_topic(
    image: MetadataImage,
    *partitions: PartitionState,
    name: str = "t",
    topic_id: UUID = TOPIC_ID,
    **configs: str,
) -> MetadataImage:
    """Return the image with another topic. Names of settings have _ instead of dots."""
    records: list[object] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [partition_record(topic_id, index, state) for index, state in enumerate(partitions)]
    records += [
        ConfigRecord(
            resource_type=TOPIC, resource_name=name, name=key.replace("_", "."), value=value
        )
        for key, value in configs.items()
    ]
    return image.replay(records, image.offset + len(records))[0]


def state_of(image: MetadataImage, index: int = 0, name: str = "t") -> PartitionState:
    return image.topics[name].partitions[index]


def context(**settings: str) -> ControllerContext:
    """Return a context whose new ids start at FIRST_UUID."""
    uuids: Iterator[UUID] = (UUID(int=number) for number in range(FIRST_UUID, 2**64))
    return ControllerContext.of(read(COMBINED, **settings), lambda: next(uuids))


def after(image: MetadataImage, decision: ControllerResult[Any]) -> MetadataImage:
    """Return the image after the decision is committed."""
    return image.replay(decision.records, image.offset + len(decision.records))[0]
