"""A principal in bytes, as a broker puts it into the Envelope of a request that it forwards: behind
its version, see `versioned`."""

from __future__ import annotations

from penstock.protocol.schema import boolean, message, string


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
