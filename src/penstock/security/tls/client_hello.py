"""The first message of a TLS client, before OpenSSL gets it. PURE.

OpenSSL exchanges keys by Diffie-Hellman in finite fields if a client wants to, in groups of up to
8,192 bits. That takes 0.1 s of the server and nothing of a client that sends arbitrary bytes as its
key (CVE-2002-20001), and Python before 3.15 cannot choose the groups. So a client is refused whose
message would lead there. Clients use elliptic curves, unless they are told not to.

If a client sends a key of no group of the server, the server asks for one of a group that both
support, an elliptic curve if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.limits import MAX_CLIENT_HELLO_BYTES

_HANDSHAKE, _CLIENT_HELLO = 0x16, 1
# ChangeCipherSpec, an alert, data: OpenSSL ignores some of them.
_OTHER_RECORDS = (0x14, 0x15, 0x17)
_RECORD_HEADER_BYTES, _MESSAGE_HEADER_BYTES = 5, 4
_VERSION_AND_RANDOM_BYTES = 34
_SUPPORTED_GROUPS, _KEY_SHARE = 10, 51
_FINITE_FIELDS = range(0x0100, 0x0200)
# P-256, P-384, P-521, X25519, X448.
_CURVES = frozenset({23, 24, 25, 29, 30})
_MALFORMED = "the first message of the peer is malformed"


class HelloRefused(ValueError):
    """The reason why a client is refused, for an operator."""


def missing_bytes(received: bytes) -> int:
    """Return how many bytes must arrive at least before the message is complete. 0 if it is, and if
    the bytes are not TLS. Raises HelloRefused."""
    message, start = b"", 0
    while True:
        size_end = start + _RECORD_HEADER_BYTES
        if start < len(received) and received[start] != _HANDSHAKE:
            if start or received[start] in _OTHER_RECORDS:
                raise HelloRefused(_MALFORMED)
            return 0
        if len(received) < size_end:
            return size_end - len(received)
        end = size_end + int.from_bytes(received[size_end - 2 : size_end])
        if end > MAX_CLIENT_HELLO_BYTES:
            raise HelloRefused("the first message of the peer is too large")
        if len(received) < end:
            return end - len(received)
        message += received[size_end:end]
        if len(message) >= _message_end(message):
            return 0
        start = end


def check_hello(received: bytes) -> bool:
    """Check the records of a complete message. Return True if the server asks for a key of another
    group, and the client for most of the server's work later. Raises HelloRefused."""
    message = b"".join(_records(received))
    if message[:1] != bytes([_CLIENT_HELLO]):
        return False  # OpenSSL says what it is
    try:
        groups, shares = _groups(message[_MESSAGE_HEADER_BYTES : _message_end(message)])
    except IndexError:
        raise HelloRefused(_MALFORMED) from None
    if any(group in _FINITE_FIELDS for group in shares or ()) or (
        groups.isdisjoint(_CURVES) and any(group in _FINITE_FIELDS for group in groups)
    ):
        raise HelloRefused(
            "the peer exchanges keys by Diffie-Hellman in a finite field, not by elliptic curves"
        )
    return shares is not None and shares.isdisjoint(_CURVES)


def _message_end(message: bytes) -> int:
    if len(message) < _MESSAGE_HEADER_BYTES:
        return _MESSAGE_HEADER_BYTES
    return _MESSAGE_HEADER_BYTES + int.from_bytes(message[1:_MESSAGE_HEADER_BYTES])


def _records(received: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(received) and received[start] == _HANDSHAKE:
        content = start + _RECORD_HEADER_BYTES
        start = content + int.from_bytes(received[content - 2 : content])
        yield received[content:start]


def _groups(hello: bytes) -> tuple[set[int], set[int] | None]:
    """Return the groups that a client supports, and those that it sends keys of; None before TLS
    1.3. Raises IndexError."""
    groups: set[int] = set()
    shares: set[int] | None = None
    at = _VERSION_AND_RANDOM_BYTES
    for size_bytes in (1, 2, 1):  # the session, cipher suites, and compressions
        _skipped, at = _vector(hello, at, size_bytes)
    if at == len(hello):
        return groups, shares
    extensions, _end = _vector(hello, at, 2)
    at = 0
    while at < len(extensions):
        kind = _number(extensions, at)
        content, at = _vector(extensions, at + 2, 2)
        if kind == _SUPPORTED_GROUPS:
            listed, _end = _vector(content, 0, 2)
            groups |= {_number(listed, each) for each in range(0, len(listed), 2)}
        elif kind == _KEY_SHARE:
            shares = set() if shares is None else shares
            listed, _end = _vector(content, 0, 2)
            each = 0
            while each < len(listed):
                shares.add(_number(listed, each))
                _key, each = _vector(listed, each + 2, 2)
    return groups, shares


def _number(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]


def _vector(data: bytes, at: int, size_bytes: int) -> tuple[bytes, int]:
    """Return the content of a vector, and where it ends."""
    start = at + size_bytes
    end = start + int.from_bytes(data[at:start])
    if start > len(data) or end > len(data):
        raise IndexError("a vector is cut off")
    return data[start:end], end
