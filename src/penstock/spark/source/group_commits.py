"""Commits a query's offsets to the consumer group of the option groupId, beside its triggers.

The query resumes from Spark's checkpoint; the commit only lets tools show its lag. A trigger waits
a moment for the commit, so that a query that ends has committed. A commit that takes longer or
fails is repeated in the background until it succeeds, always with the newest offsets, and the
triggers do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from penstock.client.admin.groups import OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.errors import Backoff
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition

logger = logging.getLogger(__name__)

# A commit takes some milliseconds.
_TRIGGER_WAIT_S = 0.2
# How soon a commit is repeated that the coordinator refuses, such as to a group with members.
_REFUSED_RETRY_S = 5.0


class GroupCommits:
    """`offer` and `close` run in the client's event loop."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._offered: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._reported = ""
        self._task: asyncio.Task[None] | None = None
        # Set after the first attempt of `_task`.
        self._attempted = asyncio.Event()

    def is_offered(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return True if these offsets are committed, or will be."""
        return offsets == self._offered

    async def offer(self, client: Client, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets. Return when they are committed, when the attempt failed, or after a
        moment; at once if an earlier commit is still being repeated."""
        self._offered = offsets
        if self._is_running():
            return
        self._attempted = asyncio.Event()
        self._task = asyncio.create_task(self._commit(client))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TRIGGER_WAIT_S):
                await self._attempted.wait()

    async def close(self) -> None:
        """Give up a commit that has not succeeded."""
        if self._is_running():
            assert self._task is not None
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _is_running(self) -> bool:
        """A task of another event loop ended with it."""
        task = self._task
        return (
            task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()
        )

    async def _commit(self, client: Client) -> None:
        backoff = Backoff(client.cluster.world.rng)
        while self._committed != self._offered:
            offsets = self._offered
            commits = {
                partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()
            }
            try:
                await client.groups.commit_offsets(self._group_id, commits)
            except KafkaError as error:
                self._report(error)
                self._attempted.set()
                await asyncio.sleep(backoff.next_s() if error.code.retriable else _REFUSED_RETRY_S)
            else:
                self._committed, self._reported = offsets, ""
        self._attempted.set()

    def _report(self, error: KafkaError) -> None:
        """Log an error once until it changes."""
        if str(error) == self._reported:
            return
        self._reported = str(error)
        advice = (
            "; the group has members, so set groupId to a group that no consumer joins"
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID
            else ""
        )
        logger.warning(
            "offsets of the query were not committed to group %s: %s%s. They are committed again "
            "in the background",
            self._group_id,
            error,
            advice,
        )
