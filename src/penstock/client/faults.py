"""What can go wrong between a client and a broker, beyond what the broker answers. Knows nothing of
requests."""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError


class ConnectionFailed(KafkaError):
    """A broker that cannot be reached, or went away: what was asked of it may or may not have
    happened."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[KafkaError], tuple[ErrorCode, str]]:
        return KafkaError, (self.code, self.message)


class NotKafka(ConnectionFailed):
    """A peer whose answers cannot be Kafka's protocol. Its connection is closed."""


def check(code: int, message: str) -> None:
    """Raises what a response says went wrong."""
    if code:
        raise error_of(code, message)


def error_of(code: int, message: str) -> KafkaError:
    """A broker newer than we are may say a code that we do not know."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{message} (error code {code}, which this client does not know)",
        )


def reason(error: OSError) -> str:
    """An OSError in words, without what asyncio puts around it."""
    text = error.strerror or str(error) or type(error).__name__
    return text.lower() if text[:2].istitle() else text
