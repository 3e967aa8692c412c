"""The encoding of a principal in an Envelope, in which a broker forwards a request. Its version
precedes it, see `versioned`."""

from __future__ import annotations

from penstock.protocol.schema import boolean, message, string


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
