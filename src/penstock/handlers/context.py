"""What a handler knows of a request besides its message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.security.principals import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from penstock.handlers.authentication import Authentication
    from penstock.handlers.authorization.guard import Guard

T = TypeVar("T")


class ConnectionHandle:
    """A client's connection: when it was opened (on the event loop's clock), its principal, whether
    a delegation token authenticated it, its authentication on a SASL listener, and callbacks for
    its end. `is_follower` is True if another broker replicates partitions by it: no quota of
    clients applies to it."""

    __slots__ = (
        "_callbacks",
        "authentication",
        "is_follower",
        "is_refused_node",
        "opened",
        "principal",
        "token_authenticated",
    )

    def __init__(self, opened: float = 0.0) -> None:
        self.opened = opened
        self.principal = ANONYMOUS
        self.token_authenticated = False
        self.authentication: Authentication | None = None
        self.is_follower = False
        # It was refused what only nodes may do: quotas apply to all its requests. A node may be
        # refused while its controller loads the entries, and is allowed later.
        self.is_refused_node = False
        self._callbacks: dict[Hashable, Callable[[], None]] = {}

    def on_lost(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when the connection is lost. Registering a key again replaces its
        callback."""
        self._callbacks[key] = callback

    def lost(self) -> None:
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback()


class RequestContext(NamedTuple):
    """`received` is in seconds of the event loop's clock. A named tuple, since one is made for each
    request: a dataclass takes five times as long."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    received: float
    connection: ConnectionHandle
    # None if the node has no authorizer: every client may do everything.
    guard: Guard | None = None

    @property
    def principal(self) -> KafkaPrincipal:
        return self.connection.principal

    @property
    def token_authenticated(self) -> bool:
        """True if the client has a delegation token."""
        return self.connection.token_authenticated


class Exclusive(Generic[T]):
    """An awaitable response before which the connection takes no other request. For responses that
    are large and take several turns of the event loop to build, since a client may send hundreds of
    such requests ahead. Kafka takes one request of a connection at a time."""

    __slots__ = ("response",)

    def __init__(self, response: Awaitable[T]) -> None:
        self.response = response

    def __await__(self) -> Generator[Any, None, T]:
        return self.response.__await__()
