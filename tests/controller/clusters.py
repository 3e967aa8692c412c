"""Clusters, as images, that the decisions of this room are tested on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.metadata.image import BrokerImage, MetadataImage, SupportedFeature
from penstock.metadata.snapshot import register_broker_record
from tests.config.node_examples import COMBINED, read

FIRST_UUID = 1_000


def broker(
    broker_id: int, *, rack: str | None = None, fenced: bool = False, shutting_down: bool = False, directories: int = 1
) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=broker_id + 100,
        incarnation_id=UUID(int=broker_id + 500),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        directories=tuple(directory(broker_id, index) for index in range(directories)),
        features=(SupportedFeature("metadata.version", 1, 30),),
    )


def directory(broker_id: int, index: int = 0) -> UUID:
    return UUID(int=(broker_id + 1) * 10_000 + index)


def cluster(*brokers: BrokerImage) -> MetadataImage:
    """With broker 1 alone if none is given."""
    image, _delta = MetadataImage.empty().replay(map(register_broker_record, brokers or (broker(1),)), 9)
    return image


def context(**settings: str) -> ControllerContext:
    """New topics get the uuids from FIRST_UUID on."""
    uuids: Iterator[UUID] = (UUID(int=number) for number in range(FIRST_UUID, 2**64))
    return ControllerContext.of(read(COMBINED, **settings), lambda: next(uuids))


def after(image: MetadataImage, decision: Decision[Any]) -> MetadataImage:
    """The image once the decision is committed."""
    return image.replay(decision.records, image.offset + len(decision.records))[0]
