"""The name, errors and two sides that every SASL mechanism has. PURE."""

from __future__ import annotations

from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"


class SaslFailed(Exception):
    """An authentication failed. `str(error)` is for the log of this side only: it may say whether a
    user exists. `client_message` is what the peer may read; None for a general one."""

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


def failed_openly(message: str) -> SaslFailed:
    """Return a failure whose reason the client may read: it says nothing about users."""
    return SaslFailed(message, message)


class SaslServer(Protocol):
    """The server side of one authentication. It is used once."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def authorization_id(self) -> str:
        """The authenticated user, once the exchange is complete."""

    @property
    def expires_ms(self) -> int | None:
        """When the credential expires, in milliseconds since 1970; None if it does not."""

    @property
    def is_token(self) -> bool:
        """True if the client has a delegation token (KIP-48)."""

    def evaluate(self, response: bytes) -> bytes:
        """Return the challenge that answers a client's message. Raises SaslFailed; no further
        message is accepted then."""


class SaslClient(Protocol):
    """The client side of one authentication. It is used once."""

    mechanism: str

    @property
    def is_complete(self) -> bool: ...

    def first(self) -> bytes:
        """Return the first message."""

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Return the message that answers a server's challenge; None if no more is to be sent.
        Raises SaslFailed if the server does not prove that it knows the credential. May take tens
        of milliseconds."""


def decode_utf8(message: bytes, mechanism: str) -> str:
    """Return the text of a message. Raises SaslFailed."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise failed_openly(f"Invalid SASL/{mechanism} message: it is not UTF-8") from None
