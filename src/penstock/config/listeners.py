"""Where a node listens and what it advertises: `listeners` and its companions, parsed. Knows
nothing of roles or sockets."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.config import node_settings as node
from penstock.config.setting import Setting
from penstock.config.values import RefusedError, Values, require

MAX_PORT = 65_535
HOST = r"[0-9a-zA-Z\-%._:]*"

_LISTENER = re.compile(
    rf"([0-9a-zA-Z\-_.]+)://(\[{HOST}\]|[0-9a-zA-Z\-%._]*):([0-9]{{1,5}})", re.ASCII
)


class SecurityProtocol(StrEnum):
    """How a listener is secured. Only the first is there yet."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Listener:
    """One entry of listeners or advertised.listeners. Host None: every address of the machine. Port
    0: a free one."""

    name: str
    host: str | None
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.name}://{f'[{host}]' if ':' in host else host}:{self.port}"


def controller_listener_names(values: Values) -> tuple[str, ...]:
    return tuple(name.upper() for name in values[node.CONTROLLER_LISTENER_NAMES])


def security_protocols(values: Values) -> dict[str, SecurityProtocol]:
    """By listener name. Controllers' listeners are PLAINTEXT without being mapped, as long as
    nothing else is asked for."""
    setting = node.LISTENER_SECURITY_PROTOCOL_MAP
    protocols = {}
    for pair in filter(None, (part.strip() for part in values[setting].split(","))):
        name, colon, protocol = pair.rpartition(":")
        require(bool(colon and name.strip()), setting, f"{pair!r} is not in the form NAME:PROTOCOL")
        protocols[name.strip().upper()] = _security_protocol(protocol.strip())
    if not values.is_set(setting):
        for name in controller_listener_names(values):
            protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
    return protocols


def listeners(values: Values) -> tuple[Listener, ...]:
    texts = values[node.LISTENERS]
    found = _parse_all(values, node.LISTENERS, texts)
    _check_ports(found)
    return found


def advertised_listeners(values: Values) -> tuple[Listener, ...]:
    """Those given, or else the listeners themselves."""
    given = values[node.ADVERTISED_LISTENERS]
    found = (
        listeners(values) if given is None else _parse_all(values, node.ADVERTISED_LISTENERS, given)
    )
    for listener in found:
        require(
            listener.host != "0.0.0.0",
            node.ADVERTISED_LISTENERS,
            (
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0 (in "
                f"{listener}). Use a routable IP address."
            ),
        )
    return found


def inter_broker_listener_name(values: Values) -> str:
    return (values[node.INTER_BROKER_LISTENER_NAME] or SecurityProtocol.PLAINTEXT).upper()


def _security_protocol(name: str) -> SecurityProtocol:
    try:
        return SecurityProtocol(name.upper())
    except ValueError:
        reason = f"Invalid security protocol `{name}` defined in listener.security.protocol.map"
        raise RefusedError(node.LISTENER_SECURITY_PROTOCOL_MAP, reason) from None


def _parse_all(values: Values, setting: Setting[Any], texts: Sequence[str]) -> tuple[Listener, ...]:
    protocols = security_protocols(values)
    found = tuple(_parse(text, setting, protocols) for text in texts)
    names = {listener.name for listener in found}
    require(
        len(names) == len(found),
        setting,
        f"Each listener must have a different name, listeners: {','.join(texts)}",
    )
    return found


def _parse(text: str, setting: Setting[Any], protocols: Mapping[str, SecurityProtocol]) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise RefusedError(
            setting,
            (
                f"Unable to parse {text} to a broker endpoint: it should be in the form "
                "NAME://host:port"
            ),
        )
    name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
    require(
        port <= MAX_PORT,
        setting,
        (
            f"Unable to parse {text} to a broker endpoint: {port} is no port, the highest is "
            f"{MAX_PORT}"
        ),
    )
    require(
        name in protocols,
        setting,
        (
            f"No security protocol defined for listener {name}: add it to "
            "listener.security.protocol.map"
        ),
    )
    require_built(name, protocols[name], setting)
    return Listener(name, host or None, port, protocols[name])


def require_built(name: str, protocol: SecurityProtocol, setting: Setting[Any]) -> None:
    require(
        protocol is SecurityProtocol.PLAINTEXT,
        setting,
        (
            f"listener {name} asks for {protocol}, which Penstock does not have yet: it would be "
            "served in plain text. Use PLAINTEXT."
        ),
    )


def _check_ports(found: Sequence[Listener]) -> None:
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in found:
        if listener.port != 0:
            by_port[listener.port].append(listener)
    for same in by_port.values():
        # One may be on IPv4 and the other on IPv6 (KIP-797).
        families = sorted(_ip_version(listener.host) for listener in same)
        apart = len(same) == 1 or families == [4, 6]
        require(
            apart,
            node.LISTENERS,
            f"Each listener must have a different port, listeners: {','.join(map(str, same))}",
        )


def _ip_version(host: str | None) -> int:
    """4, 6, or 0 for a name and for every address."""
    try:
        return ipaddress.ip_address(host or "").version
    except ValueError:
        return 0
