"""The messages of SCRAM (RFC 5802, section 7), parsed strictly. PURE.

Signatures are computed over the bytes as they were sent, so messages keep their text. Channel
binding is not supported (the flag `n`), as in Kafka. An extension that begins with `m=` is
mandatory to understand, and refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from penstock.limits import MAX_SCRAM_MESSAGE_BYTES
from penstock.security.sasl.mechanism import SaslFailed

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_NONCE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\0]+)*"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}",
    re.ASCII,
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(
    rf"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    header: str
    bare: str
    user: str
    nonce: str
    authorization_id: str
    extensions: dict[str, str]

    @property
    def is_token(self) -> bool:
        """True if the user is the id of a delegation token (KIP-48)."""
        return self.extensions.get("tokenauth", "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ServerFirst:
    text: str
    nonce: str
    salt: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """`unproved` is the message without the proof."""

    unproved: str
    channel_binding: bytes
    nonce: str
    proof: bytes = field(repr=False)


def parse_client_first(message: bytes) -> ClientFirst:
    match = _match(_CLIENT_FIRST, message, "client first")
    extensions = {}
    for pair in filter(None, match["extensions"].split(",")):
        name, _equals, value = pair.partition("=")
        if name == "m":
            raise SaslFailed("the SCRAM client first message has a mandatory extension")
        extensions[name] = value
    return ClientFirst(
        match["header"],
        match["bare"],
        unescaped(match["name"]),
        match["nonce"],
        unescaped(match["authzid"] or ""),
        extensions,
    )


def parse_server_first(message: bytes) -> ServerFirst:
    match = _match(_SERVER_FIRST, message, "server first")
    return ServerFirst(match[0], match["nonce"], _decode(match["salt"]), int(match["iterations"]))


def parse_client_final(message: bytes) -> ClientFinal:
    match = _match(_CLIENT_FINAL, message, "client final")
    return ClientFinal(
        match["unproved"], _decode(match["binding"]), match["nonce"], _decode(match["proof"])
    )


def parse_server_final(message: bytes) -> bytes:
    """Return the server's signature. Raises SaslFailed if the message is an error."""
    match = _match(_SERVER_FINAL, message, "server final")
    if match["error"] is not None:
        raise SaslFailed(f"the server refused the SCRAM proof: {match['error'][:100]}")
    return _decode(match["signature"])


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def escaped(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The pattern of a name lets no other `=` through."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    """The message is not in the error: it may have a proof or the name of a user."""
    if len(message) > MAX_SCRAM_MESSAGE_BYTES:
        raise SaslFailed(f"the SCRAM {name} message has {len(message)} bytes")
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslFailed(f"the SCRAM {name} message is malformed")
    return match


def _decode(text: str) -> bytes:
    """Only the canonical text is accepted: a proof has one spelling."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    if base64.b64encode(data).decode() != text:
        raise SaslFailed("a SCRAM message has invalid base64")
    return data
