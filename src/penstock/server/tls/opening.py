"""A connection whose handshake is complete: whose it is."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any, cast

from penstock.handlers.context import ConnectionHandle
from penstock.limits import TLS_READ_AHEAD_BYTES
from penstock.security.tls.node import TlsListenerConfig
from penstock.server.tls.handshakes import Arrival


class TlsOpening:
    """One connection to a TLS listener."""

    __slots__ = ("_arrival", "_config")

    def __init__(self, arrival: Arrival, config: TlsListenerConfig) -> None:
        self._arrival = arrival
        self._config = config

    def opened(
        self,
        transport: asyncio.Transport,
        connection: ConnectionHandle,
        end_turn: Callable[[], None],
    ) -> bool:
        """Set the principal of the client's certificate. Return False if the certificate has a name
        that no rule of ssl.principal.mapping.rules applies to. SASL sets that of SASL_SSL.
        `end_turn` is called when the peer has sent many small records."""
        self._arrival.complete()
        cast(Any, transport).set_read_buffer_limits(TLS_READ_AHEAD_BYTES, 0)
        connected = transport.get_extra_info("ssl_object")
        connected.end_turn = end_turn
        certificate = connected.getpeercert(binary_form=True)
        if connected.session_reused and certificate is not None and has_expired(certificate):
            self._arrival.refuse("the certificate of a resumed session has expired")
            return False
        if not self._config.authenticates:
            return True
        try:
            connection.principal = self._config.principal(certificate)
        except ValueError as error:
            self._arrival.refuse(str(error))
            return False
        return True


def has_expired(certificate: bytes) -> bool:
    """A client may resume a session of TLS 1.2 by its id for two hours. OpenSSL does not look at
    the certificate again."""
    from cryptography import x509

    end = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    return datetime.datetime.now(datetime.UTC) > end


def drop_records(transport: asyncio.Transport) -> None:
    """The connection is closed: what still arrives is dropped, up to a bound. The transport does
    not refer to the connection any more."""
    connected = transport.get_extra_info("ssl_object")
    connected.is_closing, connected.end_turn = True, None


def read_ahead_bytes(transport: asyncio.Transport) -> int:
    """Return how many encrypted bytes the transport holds of a connection that is not read: it
    reads on until it has TLS_READ_AHEAD_BYTES, and at most one piece more."""
    return int(cast(Any, transport).get_read_buffer_size())
