"""Chooses the transactional ids of this process for the rows of its tasks.

They are `<sink>/<nonce>/<slot>`. The nonce is random for each process. A Python worker runs one
task at a time, so a speculative twin, a retried stage and a task that outlived its query never
share an id with each other. A slot holds the transaction of one task. Tasks of one lease have
different slots, since the commit still needs the transactions of all of them. A later lease reuses
slots: it has ended all transactions that were open before it was taken. Ids thus stay few, and
coordinators keep them all in memory.
"""

from __future__ import annotations

import os
import secrets

from penstock.spark.sink.lease import Lease

_NONCE_BYTES = 8


class Slots:
    """The leases by slot that used it last, of one process and sink."""

    def __init__(self, sink: str, nonce: str) -> None:
        self._sink = sink
        self._nonce = nonce
        self._last: list[Lease] = []

    def take(self, lease: Lease) -> str:
        """Return a transactional id whose last transaction is of an older lease, or a new id.

        InitProducerId aborts the id's open transaction. One of an older lease is not decided, for
        this lease has settled all decisions before it.
        """
        for slot, last in enumerate(self._last):
            if lease.is_newer_than(last):
                self._last[slot] = lease
                return self._id(slot)
        self._last.append(lease)
        return self._id(len(self._last) - 1)

    def _id(self, slot: int) -> str:
        return f"{self._sink}/{self._nonce}/{slot}"


# By process id, since a worker is forked from a process that may have used slots too.
_slots: dict[tuple[int, str], Slots] = {}


def slots_of(sink: str) -> Slots:
    key = os.getpid(), sink
    if key not in _slots:
        _slots[key] = Slots(sink, secrets.token_hex(_NONCE_BYTES))
    return _slots[key]
