"""The .txnindex file: the aborted transactions of a segment, in Kafka's format. Absent where there
are none."""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.log.files import OpenFiles

# version, producer id, first offset, last offset, last stable offset
TXN_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """Records of this producer from the first to the last offset (its marker, inclusive) are not
    for read_committed consumers."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """Aborted transactions whose marker lies in one segment, in the order of the markers."""

    def __init__(self, files: OpenFiles, path: str) -> None:
        self.path = path
        self._files = files
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = self._read() if self._files.disk.exists(self.path) else []
        return self._entries

    def _read(self) -> list[AbortedTxn]:
        data = self._files.disk.read(self.path)
        whole = len(data) - len(data) % TXN_ENTRY.size
        return [AbortedTxn(*fields) for _version, *fields in TXN_ENTRY.iter_unpack(data[:whole])]

    def append(self, txn: AbortedTxn) -> None:
        entries = self.entries()
        self._files.get(self.path, create=True).pwrite(
            TXN_ENTRY.pack(_VERSION, *txn), len(entries) * TXN_ENTRY.size
        )
        entries.append(txn)

    def truncate(self, offset: int) -> None:
        """Forgets transactions that ended at or after this offset."""
        kept = [txn for txn in self.entries() if txn.last_offset < offset]
        if len(kept) != len(self.entries()):
            self._files.get(self.path).truncate(len(kept) * TXN_ENTRY.size)
            self._entries = kept
