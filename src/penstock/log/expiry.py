"""Retention of all logs of a store: expired segments are removed, when they are due."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol

from penstock import limits
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.log.directory import TooManyFiles, unless_offline
from penstock.log.due import DueLogs
from penstock.log.log import Log
from penstock.log.saved_offsets import Offsets
from penstock.log.segment import TimesUnknown
from penstock.log.times import learn_times
from penstock.world import World


class Logs(Protocol):
    logs: dict[TopicPartition, Log]
    due: DueLogs

    def remove_later(self, path: str, delay_ms: int) -> None: ...


class Expiry:
    def __init__(self, store: Logs, world: World) -> None:
        self._store = store
        self._world = world

    async def apply(self, high_watermarks: Offsets) -> int:
        """Remove expired segments, of some logs per turn of the event loop. Return their number.
        Only logs of which a segment may have expired are looked at."""
        due, count = self._store.due, 0
        marked, due.retention = due.retention, {}
        marked.update(dict.fromkeys(due.retention_times.take(self._world.clock.now_ms())))
        for number, log in enumerate(marked, 1):
            high_watermark = high_watermarks.get(log.partition)
            if not self._is_in_service(log):
                pass  # it was deleted
            elif high_watermark is None:
                due.retention[log] = None
            else:
                due.retention[log] = None  # if this fails, for want of open files
                with unless_offline(log.directory):
                    count += await self._retire_expired(log, high_watermark)
                    due.retention.pop(log, None)
                    self._plan_next(log)
            if number % limits.RETENTION_LOGS_A_TURN == 0:
                await asyncio.sleep(0)
        return count

    def _is_in_service(self, log: Log) -> bool:
        return self._store.logs.get(log.partition) is log

    def _plan_next(self, log: Log) -> None:
        """Look at a log again when its next segment may expire."""
        try:
            next_ms = log.next_retention_ms()
        except TimesUnknown:
            next_ms = -inf
        if not self._is_in_service(log) or next_ms == inf:
            return
        if next_ms <= self._world.clock.now_ms():
            self._store.due.retention[log] = None  # not replicated yet, or damaged
        else:
            self._store.due.retention_times.not_after(log, next_ms)

    async def _retire_expired(self, log: Log, high_watermark: int) -> int:
        while True:
            try:
                number = log.expired(high_watermark, self._world.clock.now_ms())
                retired = log.retire(number)
            except TimesUnknown as unknown:
                await learn_times(log, self._world, [unknown.segment])
                if not unknown.segment.has_times or not self._is_in_service(log):
                    return 0  # the segment or the log was removed
                continue
            except KafkaError as error:
                if isinstance(error, TooManyFiles) or log.directory.failure is not None:
                    raise
                log.mark_damaged(error)  # the active segment, which is rolled if all are expired
                return 0
            for path in retired:
                self._store.remove_later(path, log.config.file_delete_delay_ms)
            return number
