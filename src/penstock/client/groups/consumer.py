"""A consumer in a group: the group says which partitions it reads, and remembers how far it
came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any

from penstock.client.cluster import Cluster
from penstock.client.consumer import BEGINNING, Consumer, ConsumerRecord, Start
from penstock.client.groups.admin import NO_GENERATION, Committed, Groups, Membership
from penstock.client.groups.coordinators import Coordinators
from penstock.client.groups.member import GroupMember
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition


class GroupConsumer:
    """`async for record in consumer`, or `poll` for lists. What was given by `poll` is committed by
    `commit`, by the next `poll` after the interval, and when partitions are handed over; so a
    record is processed at least once."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Sequence[str],
        *,
        start: Start = BEGINNING,
        auto_commit_s: float | None = 5.0,
        instance_id: str | None = None,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 300.0,
        heartbeat_interval_s: float = 3.0,
        **options: Any,
    ) -> None:
        """`start` is where to begin in a partition that the group has not read yet; the other
        options are those of `Consumer`."""
        self._groups = Groups(cluster)
        self._member = GroupMember(
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
        # How long it took to join the last time.
        self.joined_after_s = 0.0

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    @property
    def membership(self) -> Membership:
        return self._member.membership

    @property
    def generation(self) -> int:
        return self.membership.generation

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
        """Commits and leaves, so that the others need not wait for this member's session to end."""
        if self._auto_commit_s is not None:
            await self._commit_if_current()
        self._consumer.close()
        await self._member.leave()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def poll(self) -> list[ConsumerRecord]:
        """What came in, after at most about max_wait_s; may be nothing. Joins the group where that
        is due, which may take long."""
        now = self._clock.monotonic()
        if self._auto_commit_s is not None and now >= self._commit_due and not self._member.wanted:
            self._commit_due = now + self._auto_commit_s
            await self._commit_if_current()
        if self._member.wanted:
            await self._join()
        return await self._consumer.poll()

    async def commit(self) -> None:
        """How far this consumer has read. KafkaError where the group has given its partitions to
        another meanwhile."""
        changed = {one: at for one, at in self.positions.items() if self._committed.get(one) != at}
        if changed:
            if (
                self.generation == NO_GENERATION
            ):  # without one it would be taken for a commit of somebody outside of the group
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self._group_id} has gone on without this member",
                )
            await self._groups.commit(
                self._group_id,
                {one: Committed(at) for one, at in changed.items()},
                self._member.membership,
            )
            self._committed |= changed

    async def _commit_if_current(self) -> None:
        """Partitions that another has by now are not ours to commit."""
        try:
            await self.commit()
        except KafkaError as error:
            if not self._member.outdated(error):
                raise

    async def _join(self) -> None:
        if self._auto_commit_s is not None:
            await self._commit_if_current()
        self._consumer.close()
        self._consumer.positions.clear()
        began = self._clock.monotonic()
        partitions = await self._member.join()
        self.joined_after_s = self._clock.monotonic() - began
        found = (
            await self._groups.committed(self._group_id, partitions, stable=True)
            if partitions
            else {}
        )
        self._committed = {one: at.offset for one, at in found.items()}
        await self._consumer.assign(
            {one: self._committed.get(one, self._start) for one in partitions}
        )
