"""A consumer of assigned partitions, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from penstock.client.cluster import Cluster
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.fetcher import FetchConfig, Fetcher
from penstock.client.errors import Backoff
from penstock.client.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from penstock.errors import KafkaError
from penstock.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The first offset at or after a timestamp in milliseconds, or the end if there is none."""

    timestamp: int


BEGINNING = OffsetSpec(EARLIEST)
END = OffsetSpec(LATEST)
StartOffset = int | OffsetSpec


class Consumer:
    """Call `await consumer.assign({partition: BEGINNING})`, then iterate with `async for` or call
    `poll`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        max_wait_s: float = 0.5,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        check_crcs: bool = True,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._fetcher = Fetcher(
            cluster,
            FetchConfig(
                isolation, max_wait_s, min_bytes, max_bytes, partition_max_bytes, check_crcs
            ),
        )
        self._backoff = Backoff(cluster.world.rng)
        self._failing_since: float | None = None
        self._fatal: KafkaError | None = None

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each assigned partition."""
        return self._fetcher.positions

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._fetcher.close()

    async def assign(self, starts: Mapping[TopicPartition, StartOffset]) -> None:
        """Replace the assigned partitions and their positions."""
        times = {
            partition: start.timestamp
            for partition, start in starts.items()
            if isinstance(start, OffsetSpec)
        }
        offsets = await self._list_offsets(times)
        later_than_all = [partition for partition, offset in offsets.items() if offset < 0]
        offsets |= await self._list_offsets(dict.fromkeys(later_than_all, LATEST))
        self._fetcher.close()
        self._fetcher.positions = {
            partition: offsets[partition] if isinstance(start, OffsetSpec) else start
            for partition, start in starts.items()
        }

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Return each assigned partition's high watermark or, with read_committed, last stable
        offset."""
        return await self._list_offsets(dict.fromkeys(self.positions, LATEST))

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def poll(self) -> list[ConsumerRecord]:
        """Return the records that arrive within about max_wait_s; may be empty.

        Retriable errors are retried for as long as a request may take. Other errors raise
        KafkaError, after the records that arrived with them were returned.
        """
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise fatal
        failures: list[KafkaError] = []
        await self._fetcher.send_fetches(failures)
        records = await self._fetcher.collect(failures)
        if failures:
            error = min(failures, key=lambda failure: failure.code.retriable)
            await self._handle_failure(error, idle=not records)
        else:
            self._failing_since = None
            self._backoff.reset()
        return records

    async def _list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not times:
            return {}
        found = await list_offsets(self._cluster, times, self._isolation)
        return {partition: at.offset for partition, at in found.items()}

    async def _handle_failure(self, error: KafkaError, *, idle: bool) -> None:
        now = self._cluster.world.clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if not error.code.retriable or now - self._failing_since > self._cluster.request_timeout_s:
            if idle:
                raise error
            self._fatal = error
        elif idle:
            await asyncio.sleep(self._backoff.next_s())
