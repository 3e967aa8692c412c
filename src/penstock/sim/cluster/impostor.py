"""A client of a simulated cluster that poses as one of its brokers: it fetches as a replica, in a
life that no broker lives, what is not committed yet. What it gets is noted; it must be no more than
any consumer would get (rule 8), and must acknowledge nothing (rule 12).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import cast

from penstock.client.connection import Connection, open_connection
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.records.batch import batches
from penstock.sim.cluster.history import History, Stolen
from penstock.sim.cluster.shape import Shape
from penstock.world.sim import Node as Machine

# No epoch at all, one that is over, and one that is far to come.
_EPOCHS = (-1, 0, 2**40)
# The last that has no broker's epoch in it, the first that has one, and the newest.
_VERSIONS = (12, 15, None)
_TIMEOUT_S = 1.0
_MAX_BYTES = 1_000_000


class Impostor:
    """`watermark` is the highest that any leader ever had."""

    def __init__(
        self,
        shape: Shape,
        history: History,
        rng: random.Random,
        watermark: Callable[[TopicPartition], int],
    ) -> None:
        self._shape = shape
        self._history = history
        self._rng = rng
        self._watermark = watermark

    async def pose(self, machine: Machine, over: asyncio.Event) -> None:
        while not over.is_set():
            await asyncio.sleep(self._rng.random() * 0.5)
            with contextlib.suppress(KafkaError):
                host = self._rng.choice(self._shape.brokers)
                timeouts = {"connect_timeout_s": _TIMEOUT_S, "request_timeout_s": _TIMEOUT_S}
                connection = await open_connection(
                    machine.world, host, 9092, client_id="impostor", **timeouts
                )
                try:
                    await self._steal(connection, machine.world.clock.monotonic)
                finally:
                    connection.close()

    async def _steal(self, connection: Connection, now: Callable[[], float]) -> None:
        topic = self._rng.choice(self._shape.topics)
        partition = self._rng.choice(topic.all_partitions)
        asked = MetadataRequest(
            topics=(MetadataRequest.Topic(name=topic.name),), allow_auto_topic_creation=False
        )
        described = (await connection.call(asked, MetadataResponse)).topics[0]
        ceiling = self._rng.choice(_VERSIONS)
        offset = self._watermark(partition)
        wanted = FetchRequest.Topic(
            topic=topic.name,
            topic_id=described.topic_id,
            partitions=(
                FetchRequest.Topic.Partition(
                    partition=partition.partition,
                    fetch_offset=offset,
                    partition_max_bytes=_MAX_BYTES,
                ),
            ),
        )
        replica = self._rng.choice([config.node_id for config in self._shape.configs.values()])
        has_epoch = ceiling is None or ceiling >= 15
        who = (
            {
                "replica_state": FetchRequest.ReplicaState(
                    replica_id=replica, replica_epoch=self._rng.choice(_EPOCHS)
                )
            }
            if has_epoch
            else {"replica_id": replica}
        )
        request = FetchRequest(max_wait_ms=200, min_bytes=1, topics=(wanted,), **who)
        response = await connection.call(request, FetchResponse, max_version=ceiling)
        for answer in (answer for one in response.responses for answer in one.partitions):
            for _position, header in batches(cast(bytes, answer.records or b"")):
                self._history.events.append(
                    Stolen(
                        now(), replica, partition, header.next_offset, self._watermark(partition)
                    )
                )
