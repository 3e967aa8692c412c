"""A consumer whose group assigns its partitions and stores its offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any

from penstock.client.admin.groups import (
    NO_GENERATION,
    ConsumerGroupMetadata,
    GroupAdmin,
    OffsetAndMetadata,
)
from penstock.client.cluster import Cluster
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.consumer import BEGINNING, Consumer, StartOffset
from penstock.client.consumer.coordinator import ConsumerCoordinator
from penstock.client.routing import Coordinators
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class GroupConsumer:
    """Iterate with `async for`, or call `poll`.

    Offsets of records that `poll` returned are committed by `commit`, by the next `poll` after
    the auto-commit interval, and before partitions are revoked: at-least-once processing.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        start: StartOffset = BEGINNING,
        auto_commit_s: float | None = 5.0,
        instance_id: str | None = None,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 300.0,
        heartbeat_interval_s: float = 3.0,
        **options: Any,
    ) -> None:
        """`start` is the position in partitions without a committed offset; takes the options of
        `Consumer` too."""
        self._groups = GroupAdmin(cluster)
        self._coordinator = ConsumerCoordinator(
            Coordinators(cluster),
            group_id,
            topics,
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
        )
        self._consumer = Consumer(cluster, **options)
        self._group_id = group_id
        self._start = start
        self._auto_commit_s = auto_commit_s
        self._clock = cluster.world.clock
        self._commit_due = 0.0
        self._committed: dict[TopicPartition, int] = {}
        # Duration of the last rebalance, from JoinGroup to the assignment.
        self.joined_after_s = 0.0

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._coordinator.group_metadata

    @property
    def generation(self) -> int:
        return self.group_metadata.generation

    async def __aenter__(self) -> GroupConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None or not issubclass(kind, KafkaError):
            await self.close()

    async def close(self) -> None:
        """Commit and leave the group, so that it rebalances without waiting for the session
        timeout."""
        if self._auto_commit_s is not None:
            await self._commit_unless_fenced()
        self._consumer.close()
        await self._coordinator.leave()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def poll(self) -> list[ConsumerRecord]:
        """Return the records that arrive within about max_wait_s; may be empty.

        Joins the group first if a rebalance is due, which may take up to the rebalance timeout.
        """
        now = self._clock.monotonic()
        rejoin_needed = self._coordinator.rejoin_needed
        if self._auto_commit_s is not None and now >= self._commit_due and not rejoin_needed:
            self._commit_due = now + self._auto_commit_s
            await self._commit_unless_fenced()
        if self._coordinator.rejoin_needed:
            await self._join()
        return await self._consumer.poll()

    async def commit(self) -> None:
        """Commit the positions.

        Raises KafkaError if the group has assigned the partitions to another member.
        """
        changed = {
            partition: position
            for partition, position in self.positions.items()
            if self._committed.get(partition) != position
        }
        if changed:
            if self.generation == NO_GENERATION:
                # The coordinator would accept this as a commit of a client outside the group.
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self._group_id} has removed this member",
                )
            await self._groups.commit_offsets(
                self._group_id,
                {partition: OffsetAndMetadata(position) for partition, position in changed.items()},
                self._coordinator.group_metadata,
            )
            self._committed |= changed

    async def _commit_unless_fenced(self) -> None:
        """Commit; ignore the error if the partitions already belong to another member."""
        try:
            await self.commit()
        except KafkaError as error:
            if not self._coordinator.check_rejoin(error):
                raise

    async def _join(self) -> None:
        if self._auto_commit_s is not None:
            await self._commit_unless_fenced()
        self._consumer.close()
        self._consumer.positions.clear()
        began = self._clock.monotonic()
        partitions = await self._coordinator.join()
        self.joined_after_s = self._clock.monotonic() - began
        fetched = (
            await self._groups.fetch_offsets(self._group_id, partitions, stable=True)
            if partitions
            else {}
        )
        self._committed = {partition: committed.offset for partition, committed in fetched.items()}
        await self._consumer.assign(
            {partition: self._committed.get(partition, self._start) for partition in partitions}
        )
