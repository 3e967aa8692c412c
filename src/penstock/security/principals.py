"""Who a request comes from (Kafka's KafkaPrincipal). PURE."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class KafkaPrincipal(NamedTuple):
    """The type is `User` unless a super user or an ACL names another one."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> KafkaPrincipal:
    """Return the principal of Type:name, as records have it. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise ValueError(f"{text!r} is no principal: expected Type:name, such as User:alice")
    return KafkaPrincipal(kind, name)


# The principal of connections on a PLAINTEXT listener, and of TLS clients without a certificate.
ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")
