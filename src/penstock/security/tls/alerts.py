"""The alert of a failed handshake, sent to the peer.

OpenSSL leaves the alert that says why it refuses a peer in the buffer of what is to be sent.
asyncio and uvloop close the connection without sending it, so that the peer could not tell a
refused certificate from a broken network, and would try again for ever. Here the alert is sent when
the handshake fails, before the event loop learns of it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from contextvars import ContextVar
from typing import Any

from penstock.security.tls.client_hello import HelloRefused, check_hello, missing_bytes
from penstock.security.tls.records import RecordsObject, tls_error

_HANDSHAKE_FAILURE = bytes.fromhex("15 03 03 00 02 02 28")

# The socket of the handshake that the current task runs.
handshake_socket: ContextVar[socket.socket | None] = ContextVar("handshake_socket", default=None)


class _AlertingObject(RecordsObject):
    # While the handshake runs: what is to be sent, and where.
    alert: tuple[ssl.MemoryBIO, socket.socket] | None = None
    # Of a server: the client's first message, as far as it has arrived; None after it was checked.
    _received: bytes | None = b""

    def do_handshake(self) -> None:
        try:
            if self.server_side and self._received is not None:
                self._check_hello(self._received + self.arrived.read())
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.alert is not None:
                outgoing, peer = self.alert
                with contextlib.suppress(OSError):  # the peer has gone
                    peer.send(outgoing.read())
            raise
        self.alert = None

    def _check_hello(self, received: bytes) -> None:
        """Check the client's first message once it is complete. Raises SSLError, and
        SSLWantReadError before."""
        try:
            if missing_bytes(received):
                self._received = received
                raise ssl.SSLWantReadError
            check_hello(received)
        except HelloRefused as error:
            if self.alert is not None:
                self.alert[0].write(_HANDSHAKE_FAILURE)
            raise tls_error(str(error)) from None
        self._received = None
        self.arrived.write(received)


class AlertingContext(ssl.SSLContext):
    """Set `handshake_socket` in the task that starts a handshake."""

    sslobject_class = _AlertingObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any
    ) -> ssl.SSLObject:
        given = ssl.MemoryBIO()
        made = super().wrap_bio(given, outgoing, *args, **kwargs)
        assert isinstance(made, _AlertingObject)
        made.arrived, made.given = incoming, given
        peer = handshake_socket.get()
        if peer is not None:
            made.alert = outgoing, peer
        return made
