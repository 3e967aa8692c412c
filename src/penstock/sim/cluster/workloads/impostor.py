"""A client that poses as a replica: it fetches uncommitted records with a made-up broker epoch.

It must get nothing more than a consumer would (rule 8), and its fetches must acknowledge nothing
(rule 12).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, cast

from penstock.client.connection import Connection, open_connection
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.records.batch import batches
from penstock.sim.cluster.events import ImpostorFetched
from penstock.sim.cluster.history import History
from penstock.sim.cluster.spec import ClusterSpec
from penstock.world.sim import Node as Machine

# No broker epoch, one of the past, and one of the far future.
_EPOCHS = (-1, 0, 2**40)
# The last Fetch version without a broker epoch, the first with one, and the newest.
_VERSIONS = (12, 15, None)
_FIRST_VERSION_WITH_EPOCH = 15
_TIMEOUT_S = 1.0
_MAX_BYTES = 1_000_000


class Impostor:
    """`high_watermark` gives the highest high watermark that any leader has had."""

    def __init__(
        self,
        spec: ClusterSpec,
        history: History,
        rng: random.Random,
        high_watermark: Callable[[TopicPartition], int],
    ) -> None:
        self._spec = spec
        self._history = history
        self._rng = rng
        self._high_watermark = high_watermark

    async def run(self, machine: Machine, over: asyncio.Event) -> None:
        while not over.is_set():
            await asyncio.sleep(self._rng.random() * 0.5)
            with contextlib.suppress(KafkaError):
                host = self._rng.choice(self._spec.brokers)
                timeouts = {"connect_timeout_s": _TIMEOUT_S, "request_timeout_s": _TIMEOUT_S}
                connection = await open_connection(
                    machine.world, host, 9092, client_id="impostor", **timeouts
                )
                try:
                    await self._fetch(connection, machine.world.clock.monotonic)
                finally:
                    connection.close()

    async def _fetch(self, connection: Connection, now: Callable[[], float]) -> None:
        topic = self._rng.choice(self._spec.topics)
        partition = self._rng.choice(topic.all_partitions)
        metadata = await connection.call(
            MetadataRequest(
                topics=(MetadataRequest.Topic(name=topic.name),), allow_auto_topic_creation=False
            ),
            MetadataResponse,
        )
        version = self._rng.choice(_VERSIONS)
        fetch_partition = FetchRequest.Topic.Partition(
            partition=partition.partition,
            fetch_offset=self._high_watermark(partition),
            partition_max_bytes=_MAX_BYTES,
        )
        fetch_topic = FetchRequest.Topic(
            topic=topic.name, topic_id=metadata.topics[0].topic_id, partitions=(fetch_partition,)
        )
        replica = self._rng.choice([config.node_id for config in self._spec.configs.values()])
        request = FetchRequest(
            max_wait_ms=200, min_bytes=1, topics=(fetch_topic,), **self._identity(replica, version)
        )
        response = await connection.call(request, FetchResponse, max_version=version)
        for fetched in (fetched for entry in response.responses for fetched in entry.partitions):
            for _position, header in batches(cast(bytes, fetched.records or b"")):
                self._history.events.append(
                    ImpostorFetched(
                        now(),
                        replica,
                        partition,
                        header.next_offset,
                        self._high_watermark(partition),
                    )
                )

    def _identity(self, replica: int, version: int | None) -> dict[str, Any]:
        """Return the fields of a Fetch request that name the replica."""
        if version is not None and version < _FIRST_VERSION_WITH_EPOCH:
            return {"replica_id": replica}
        epoch = self._rng.choice(_EPOCHS)
        state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)
        return {"replica_state": state}
