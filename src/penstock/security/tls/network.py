"""A network whose connections are encrypted: the client's side of TLS.

A protocol gets its connection after the handshake. The client verifies the host name against the
server's certificate, unless ssl.endpoint.identification.algorithm is empty. `server` has TLS
listeners of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

from penstock.security.tls.alerts import handshake_socket
from penstock.world import Network, ProtocolFactory, World
from penstock.world.wrapped_network import WrappedNetwork


class TlsRefused(ConnectionError):
    """The handshake failed for a reason that another attempt does not change."""


class TlsNetwork(WrappedNetwork):
    """`context` returns the context for a connection that is opened now."""

    def __init__(self, network: Network, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__(network)
        self._context = context

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Raises OSError, and TlsRefused for a certificate or a peer that cannot be used."""
        loop, connected = asyncio.get_running_loop(), await _connect(host, port)
        # So that the server learns why this client refuses it.
        token = handshake_socket.set(connected)
        try:
            return await loop.create_connection(
                factory, sock=connected, ssl=self._context(), server_hostname=host
            )
        except ssl.SSLError as error:
            raise TlsRefused(_reason(error)) from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            raise ConnectionResetError(
                "the TLS handshake failed: the server closed the connection. Is its listener "
                "PLAINTEXT, or does it require a client certificate (ssl.keystore.location)?"
            ) from error
        finally:
            handshake_socket.reset(token)


def with_tls(world: World, context: Callable[[], ssl.SSLContext]) -> World:
    """Return a world whose connections are encrypted."""
    return replace(world, network=TlsNetwork(world.network, context))


async def _connect(host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that accepts. Raises OSError."""
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionRefusedError(f"{host} has no address")
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _name, address in found:
        connected = socket.socket(family, kind, protocol)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connected, address)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the server is refused: {error.verify_message}. "
            "ssl.truststore.location must have its issuer"
        )
    name = error.reason or ""
    if name in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return (
            "the server does not answer with TLS: its listener is PLAINTEXT, and needs another "
            "security.protocol"
        )
    if "CERTIFICATE_REQUIRED" in name or "BAD_CERTIFICATE" in name or "UNKNOWN_CA" in name:
        return (
            f"the server refuses the client's certificate ({name.lower().replace('_', ' ')}). Set "
            "ssl.keystore.location to one whose issuer it trusts"
        )
    return f"the TLS handshake failed: {name.lower().replace('_', ' ') or error}"
