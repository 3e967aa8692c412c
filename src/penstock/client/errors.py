"""The client's errors, and how retriable ones are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import ErrorCode, KafkaError
from penstock.world import Rng, World

T = TypeVar("T")

RETRY_BACKOFF_S = 0.1
RETRY_BACKOFF_MAX_S = 1.0
_JITTER = 0.2

# A topic that was just created is unknown to some brokers for a moment. A topic that is still
# unknown after this time does not exist.
UNKNOWN_TOPIC_RETRY_S = 3.0


class ConnectionFailed(KafkaError):
    """The broker cannot be reached, or the connection was lost.

    The broker may or may not have executed a request that was in flight.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[KafkaError], tuple[ErrorCode, str]]:
        return KafkaError, (self.code, self.message)


class NotABroker(ConnectionFailed):
    """No address of those tried is that of a Kafka broker. Another attempt does not help."""


class AuthenticationFailed(NotABroker):
    """The server refuses the client's credentials, or the client the server's."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode.SASL_AUTHENTICATION_FAILED


class SaslRefused(ConnectionError):
    """The server or this client refuses the authentication. Another attempt does not help, unless
    the credentials change."""


class UnknownHost(NotABroker):
    """The host name does not exist."""


class NotKafka(NotABroker):
    """The peer sent bytes that are not Kafka's protocol. Its connection is closed."""


def check(code: int, message: str) -> None:
    """Raise KafkaError if a response's error code is not NONE."""
    if code:
        raise error_of(code, message)


def error_of(code: int, message: str) -> KafkaError:
    """Return the KafkaError of a code; a newer broker may send codes unknown to this client."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{message} (error code {code}, which this client does not know)",
        )


def reason(error: OSError) -> str:
    """Return an OSError's message without asyncio's additions."""
    text = error.strerror or str(error) or type(error).__name__
    return text.lower() if text[:2].istitle() else text


class Backoff:
    """Exponential backoff up to a maximum, with jitter so that clients do not retry in step."""

    __slots__ = ("_next_s", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_s = RETRY_BACKOFF_S

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, RETRY_BACKOFF_MAX_S)
        return wait_s * (1 + _JITTER * (2 * self._rng.random() - 1))

    def reset(self) -> None:
        self._next_s = RETRY_BACKOFF_S


async def retry(world: World, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """Return the attempt's result, retrying retriable errors until the timeout.

    Raises the last error once the timeout is over.
    """
    started = world.clock.monotonic()
    backoff = Backoff(world.rng)
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            wait_s = backoff.next_s()
            retry_s = (
                min(timeout_s, UNKNOWN_TOPIC_RETRY_S)
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else timeout_s
            )
            if not error.code.retriable or world.clock.monotonic() + wait_s > started + retry_s:
                raise
        await asyncio.sleep(wait_s)
