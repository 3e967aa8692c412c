"""Shared steps of the tests against a scripted broker."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.client.client import Client
from penstock.client.producer.accumulator import RecordMetadata
from penstock.ids import TopicPartition
from tests.client.scripted_broker import TOPIC, ScriptedBroker

PARTITION = TopicPartition(TOPIC, 0)


def requested_versions(broker: ScriptedBroker) -> dict[int, int]:
    return {key: version for key, version, _request in broker.requests}


async def produce(
    client: Client, count: int, **options: Any
) -> list[asyncio.Future[RecordMetadata]]:
    async with client.producer(batch_bytes=300, linger_s=0.0, **options) as producer:
        return [await producer.send(TOPIC, b"%d" % number, partition=0) for number in range(count)]


def written(broker: ScriptedBroker) -> list[bytes | None]:
    return [record.value for record in broker.partitions[0].records()]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
