"""The list of brokers that a client begins with. Pure."""

from __future__ import annotations

DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """ "a:9092,b:9092,[::1]:9092"; a port left out is 9092. ValueError for anything else."""
    addresses = [_parse(one.strip()) for one in text.split(",") if one.strip()]
    if not addresses:
        raise ValueError("the list of bootstrap servers is empty: give at least one host:port")
    return addresses


def _parse(text: str) -> tuple[str, int]:
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is no address: an IPv6 address is written [::1]:9092")
        port = rest[1:] if rest else port
    elif ":" in text:
        host, _colon, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(
            f"{text!r} is no address: host:port is expected, with a port from 1 to 65535"
        )
    return host, int(port)
