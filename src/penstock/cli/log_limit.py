"""Leaves out lines of a node's log that repeat too often, and says how many.

A place in the code may log a number of lines in some seconds. The last of them says that further
ones are left out. Before the next line of any place, and at the end of the process, another one
says how many were, and what the first one was. Errors are left out less: the first one of each
partition is logged, since doctor finds causes in it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from time import monotonic

from penstock.ids import TopicPartition
from penstock.limits import LOG_REPEATS_S, LOGGED_PARTITIONS

_NEVER_LIMITED = ("penstock.request", "penstock.audit")
_NOTICED = ("name", "levelno", "levelname", "pathname", "lineno")
_Key = tuple[str, int]


def partition_of(record: logging.LogRecord) -> TopicPartition | None:
    """Return the partition that a message names, if it names one."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return next((each for each in arguments if isinstance(each, TopicPartition)), None)


@dataclass(slots=True)
class _Place:
    """What a place in the code has logged since `since`: `count` lines, of which `left_out` do not
    appear. `example` is the message of the first of these, and `notice` has the fields of the line
    that says so. `partitions` have had an error that appears."""

    since: float
    count: int = 0
    left_out: int = 0
    example: str = ""
    notice: dict[str, object] | None = None
    partitions: set[TopicPartition] = field(default_factory=set)


class RateLimit(logging.Filter):
    """The filter of a handler. It also writes to the handler how many lines were left out."""

    def __init__(self, limit: int, handler: logging.Handler) -> None:
        super().__init__()
        self._limit = limit
        self._handler = handler
        self._places: dict[_Key, _Place] = {}
        # The places that left out lines since the log last told their number.
        self._untold: set[_Key] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        now = monotonic()
        if self._untold:
            self.tell(now)
        if record.name in _NEVER_LIMITED:
            return True
        key = record.pathname, record.lineno
        place = self._places.get(key)
        if place is None or now >= place.since + LOG_REPEATS_S:
            place = self._places[key] = _Place(now)
        place.count += 1
        partition = partition_of(record) if record.levelno >= logging.ERROR else None
        is_first_error = (
            partition is not None
            and partition not in place.partitions
            and len(place.partitions) < LOGGED_PARTITIONS
        )
        if partition is not None and is_first_error:
            place.partitions.add(partition)
        if place.count > self._limit and not is_first_error:
            place.left_out += 1
            if place.notice is None:
                # Not the record itself, which may keep a traceback alive.
                place.notice = {name: getattr(record, name) for name in _NOTICED}
                place.example = record.getMessage()
                self._untold.add(key)
            return False
        if place.count == self._limit:
            rest_s = place.since + LOG_REPEATS_S - now
            excepted = "" if partition is None else ", except the first of each partition"
            _add(record, f"further lines like this one are left out for {rest_s:.0f} s{excepted}")
        return True

    def tell(self, now: float) -> None:
        """Write how many lines of each place were left out, if its seconds are over."""
        for key in sorted(self._untold):
            place = self._places[key]
            if place.notice is not None and now >= place.since + LOG_REPEATS_S:
                self._untold.discard(key)
                notice = logging.makeLogRecord(
                    {**place.notice, "msg": "%s lines like this one were left out: %s"}
                )
                notice.args = (f"{place.left_out:,}", place.example)
                self._handler.acquire()
                try:
                    self._handler.emit(notice)
                finally:
                    self._handler.release()


def _add(record: logging.LogRecord, text: str) -> None:
    if isinstance(record.args, tuple) and record.args:
        # The arguments stay: one may be the partition.
        record.msg, record.args = f"{record.msg} (%s)", (*record.args, text)
    else:
        record.msg, record.args = f"{record.getMessage()} ({text})", ()
