"""Gives OpenSSL the records of a connection one by one.

One call of OpenSSL handles all that has arrived until there are bytes for the application. A peer
may send records that have none, such as TLS 1.3's KeyUpdate: a read of 128 KB has five thousand of
them, which take 0.1 to 0.2 s, and no login is needed. It may also send a byte per record. So a
connection may have few records without data, and the records of one turn have a bound.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from penstock.limits import (
    MAX_EMPTY_TLS_RECORDS,
    MAX_TLS_RECORDS_AFTER_CLOSE,
    TLS_RECORDS_A_TURN,
    TLS_RECORDS_PER_EMPTY_ONE,
)

_HEADER_BYTES = 5
_PATIENCE = MAX_EMPTY_TLS_RECORDS * TLS_RECORDS_PER_EMPTY_ONE


def tls_error(text: str) -> ssl.SSLError:
    """Return an error as OpenSSL's, which have a reason of their own."""
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, text)
    error.reason = ""
    return error


class RecordsObject(ssl.SSLObject):
    """`arrived` has the bytes of the peer, `given` those that OpenSSL reads. `end_turn` is called
    when the records of a turn have been read; it must see to it that the connection is read
    again."""

    arrived: ssl.MemoryBIO
    given: ssl.MemoryBIO
    end_turn: Callable[[], None] | None = None
    # Set it when the connection is closed, which unwrap does too: the records that are read until
    # the peer closes it as well are dropped, and have no turns.
    is_closing = False
    # Of a record that was given in part: its header, or the bytes after it that are missing.
    _header = b""
    _missing = 0
    # True if OpenSSL has a record that it has not been asked for.
    _is_unread = False
    # Falls with each record without data, and rises with others.
    _patience = _PATIENCE
    _records = 0

    def do_handshake(self) -> None:
        while True:
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                if not self._give():
                    raise
            else:
                self._is_unread = False
                return

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base's name
        if not self.pending():
            if (
                self._records >= TLS_RECORDS_A_TURN
                and self.end_turn is not None
                and not self.is_closing
            ):
                self._records = 0
                self.end_turn()
                raise ssl.SSLWantReadError
            self._give()
        while True:
            try:
                found = super().read(len, buffer)
            except ssl.SSLWantReadError:
                if not self._give_next():
                    self._records = 0
                    raise
            else:
                self._is_unread = False
                self._records += 1
                if self.is_closing:
                    self._lose_patience(_PATIENCE // MAX_TLS_RECORDS_AFTER_CLOSE)
                elif self._patience < _PATIENCE:
                    self._patience += 1
                return found

    def unwrap(self) -> Any:
        self.is_closing = True
        while True:
            try:
                return super().unwrap()
            except ssl.SSLWantReadError:
                if not self._give_next():
                    raise

    def _give_next(self) -> bool:
        """Give the next record after one without data. Return False if nothing has arrived. Raises
        SSLError if there were too many."""
        if self._is_unread:
            self._is_unread = False
            self._lose_patience(TLS_RECORDS_PER_EMPTY_ONE)
        return self._give()

    def _lose_patience(self, amount: int) -> None:
        self._patience -= amount
        if self._patience < 0:
            raise tls_error("the peer sends too many records that have no use")

    def _give(self) -> bool:
        """Give OpenSSL the next record, or as much of it as has arrived. Return False if nothing
        has."""
        arrived, given = self.arrived, self.given
        if not arrived.pending:
            return False
        if not self._missing:
            found = arrived.read(_HEADER_BYTES - len(self._header))
            given.write(found)
            self._header += found
            if len(self._header) < _HEADER_BYTES:
                return True
            self._missing = int.from_bytes(self._header[3:])
            self._header = b""
        found = arrived.read(self._missing)
        given.write(found)
        self._missing -= len(found)
        self._is_unread = not self._missing
        return True
