"""Parses the listener settings: addresses, advertised addresses and security protocols."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from penstock.config import node_settings as node
from penstock.config.setting import InconsistentSettingsError, Setting, Values, require

T = TypeVar("T")

MAX_PORT = 65_535
HOST = r"[0-9a-zA-Z\-%._:]*"

_LISTENER = re.compile(
    rf"([0-9a-zA-Z\-_.]+)://(\[{HOST}\]|[0-9a-zA-Z\-%._]*):([0-9]{{1,5}})", re.ASCII
)


class SecurityProtocol(StrEnum):
    """The security protocol of a listener."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def number(self) -> int:
        """The number of the protocol in registrations of brokers and controllers."""
        return list(SecurityProtocol).index(self)


@dataclass(frozen=True, slots=True)
class Listener:
    """One entry of listeners or advertised.listeners. Host None means all addresses, port 0 a free
    port."""

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
    """Return the protocol of each listener. Unless the map is set, controller listeners are
    PLAINTEXT."""
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
    parsed = _parse_all(values, node.LISTENERS, texts)
    _check_ports(parsed)
    return parsed


def advertised_listeners(values: Values) -> tuple[Listener, ...]:
    """Return advertised.listeners, or if it is not set the listeners."""
    texts = values[node.ADVERTISED_LISTENERS]
    parsed = (
        listeners(values) if texts is None else _parse_all(values, node.ADVERTISED_LISTENERS, texts)
    )
    for listener in parsed:
        require(
            listener.host != "0.0.0.0",
            node.ADVERTISED_LISTENERS,
            (
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0 (in "
                f"{listener}). Use a routable IP address."
            ),
        )
    return parsed


def listener_max_connections(values: Values) -> dict[str, int]:
    """Return listener.name.<name>.max.connections of the listeners that have one."""
    limits = {
        listener.name: values[listener_setting(listener.name, node.MAX_CONNECTIONS)]
        for listener in listeners(values)
    }
    default = node.MAX_CONNECTIONS.default_value()
    return {name: limit for name, limit in limits.items() if limit != default}


def listener_setting(listener_name: str, setting: Setting[T]) -> Setting[T]:
    """Return the setting for one listener."""
    return replace(setting, name=f"listener.name.{listener_name.lower()}.{setting.name}")


def connection_overrides(text: str) -> dict[str, int]:
    """Return the counts of a max.connections.per.ip.overrides by address. Kafka accepts names of
    hosts too. Raises InconsistentSettingsError."""
    setting = node.MAX_CONNECTIONS_PER_IP_OVERRIDES
    overrides = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = pair.rpartition(":")
        try:
            parsed = ipaddress.ip_address(address.strip().strip("[]"))
        except ValueError:
            raise InconsistentSettingsError(
                setting, f"{pair!r} is not in the form address:count, with an IP address"
            ) from None
        require(
            count.strip().isdecimal(), setting, f"{count.strip()!r} in {pair!r} is not a number"
        )
        overrides[str(parsed)] = int(count)
    return overrides


def inter_broker_listener_name(values: Values) -> str:
    name, protocol = node.INTER_BROKER_LISTENER_NAME, node.SECURITY_INTER_BROKER_PROTOCOL
    require(
        values[name] is None or not values.is_set(protocol),
        name,
        f"Only one of {name.name} and {protocol.name} should be set.",
    )
    return (values[name] or values[protocol]).upper()


def _security_protocol(name: str) -> SecurityProtocol:
    try:
        return SecurityProtocol(name.upper())
    except ValueError:
        reason = f"Invalid security protocol `{name}` defined in listener.security.protocol.map"
        raise InconsistentSettingsError(node.LISTENER_SECURITY_PROTOCOL_MAP, reason) from None


def _parse_all(values: Values, setting: Setting[Any], texts: Sequence[str]) -> tuple[Listener, ...]:
    protocols = security_protocols(values)
    parsed = tuple(_parse(text, setting, protocols) for text in texts)
    names = {listener.name for listener in parsed}
    require(
        len(names) == len(parsed),
        setting,
        f"Each listener must have a different name, listeners: {','.join(texts)}",
    )
    return parsed


def _parse(text: str, setting: Setting[Any], protocols: Mapping[str, SecurityProtocol]) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise InconsistentSettingsError(
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
        (f"Unable to parse {text} to a broker endpoint: port {port} is above {MAX_PORT}"),
    )
    require(
        name in protocols,
        setting,
        (
            f"No security protocol defined for listener {name}: add it to "
            "listener.security.protocol.map"
        ),
    )
    return Listener(name, host or None, port, protocols[name])


def _check_ports(parsed: Sequence[Listener]) -> None:
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in parsed:
        if listener.port != 0:
            by_port[listener.port].append(listener)
    for same in by_port.values():
        # An IPv4 and an IPv6 listener may share a port (KIP-797).
        versions = sorted(_ip_version(listener.host) for listener in same)
        require(
            len(same) == 1 or versions == [4, 6],
            node.LISTENERS,
            f"Each listener must have a different port, listeners: {','.join(map(str, same))}",
        )


def _ip_version(host: str | None) -> int:
    """Return 4 or 6; 0 for a host name and for all addresses."""
    try:
        return ipaddress.ip_address(host or "").version
    except ValueError:
        return 0
