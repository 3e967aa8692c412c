"""Bootstrap servers with the settings of the client that connects to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping


class Servers(str):
    """Bootstrap servers, and the settings of --command-config, of a profile or of --dir."""

    settings: Mapping[str, str]

    def __new__(cls, servers: str, settings: Mapping[str, str]) -> Servers:
        made = super().__new__(cls, servers)
        made.settings = settings
        return made


def security_of(bootstrap: str) -> Mapping[str, str]:
    """Return the settings of bootstrap servers; none without them."""
    return bootstrap.settings if isinstance(bootstrap, Servers) else {}
