"""The authentication of a connection on a SASL listener, and what its outcome does to it.

`SaslHandshake` and `SaslAuthenticate` advance the session. A failure is answered after
connection.failed.authentication.delay.ms, and ends the connection. The connection takes no request
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.handlers.context import ConnectionHandle, Exclusive
from penstock.limits import LOGGED_REASON_CHARACTERS

if TYPE_CHECKING:
    from penstock.security.sasl.mechanism import SaslFailed
    from penstock.security.sasl.session import Authenticated, SaslSession

T = TypeVar("T")


@dataclass(slots=True)
class AuthenticationCounts:
    """Of all connections of a server."""

    successful: int = 0
    failed: int = 0
    successful_again: int = 0
    failed_again: int = 0


@dataclass(slots=True)
class Authentication:
    """`accepted` and `refused` tell the connection the outcome; `send` sends a token without a
    Kafka header."""

    session: SaslSession
    failure_delay_s: float
    now_ms: Callable[[], int]
    counts: AuthenticationCounts
    accepted: Callable[[], None]
    refused: Callable[[str], None]
    send: Callable[[bytes], None]

    def authenticate(
        self, connection: ConnectionHandle, token: bytes, now_s: float
    ) -> Authenticated:
        """Advance the session by a token. Raises SaslFailed."""
        session = self.session
        answer = session.authenticate(token, now_s, self.now_ms())
        if session.is_complete:
            connection.principal = session.principal
            connection.token_authenticated = session.token_authenticated
            if session.is_reauthentication:
                self.counts.successful_again += 1
            else:
                self.counts.successful += 1
            self.accepted()
        return answer

    def fail(self, response: T, reason: str) -> T | Awaitable[T]:
        """Answer a failure after the delay, and close the connection. `reason` is for the log."""
        if self.session.is_reauthentication:
            self.counts.failed_again += 1
        else:
            self.counts.failed += 1
        reason = f"authentication failed: {reason[:LOGGED_REASON_CHARACTERS]}"
        if self.failure_delay_s <= 0:
            self.refused(reason)
            return response
        return Exclusive(self._fail_later(response, reason))

    async def _fail_later(self, response: T, reason: str) -> T:
        await asyncio.sleep(self.failure_delay_s)
        self.refused(reason)
        return response


def failure_reason(error: SaslFailed, mechanism: str) -> str:
    """Return a failure for the log of this node, which may name the user."""
    return f"{mechanism}: {error}"
