"""Parses `controller.quorum.voters` and `controller.quorum.bootstrap.servers`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.config import node_settings as node
from penstock.config.listeners import HOST, MAX_PORT
from penstock.config.setting import InconsistentSettingsError, Setting, Values, require
from penstock.ids import NodeId

_ADDRESS = re.compile(rf"\[?({HOST})\]?:([0-9]{{1,5}})", re.ASCII)
_NODE_ID = re.compile(r"[0-9]{1,10}", re.ASCII)
_MAX_NODE_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter of a static quorum."""

    node_id: NodeId
    address: Address

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


def given_voters(values: Values) -> tuple[Voter, ...]:
    """Return the voters of controller.quorum.voters; none if it is not set."""
    setting = node.CONTROLLER_QUORUM_VOTERS
    voters = tuple(_parse_voter(text) for text in values[setting])
    ids = {voter.node_id for voter in voters}
    require(
        len(ids) == len(voters),
        setting,
        f"voters must have distinct ids: {','.join(map(str, voters))}",
    )
    return voters


def bootstrap_servers(values: Values) -> tuple[Address, ...]:
    setting = node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS
    return tuple(_parse_address(text, text, setting, "{host}:{port}") for text in values[setting])


def ids_text(voters: Sequence[Voter]) -> str:
    return f"[{', '.join(str(voter.node_id) for voter in voters)}]"


def _parse_voter(text: str) -> Voter:
    setting, form = node.CONTROLLER_QUORUM_VOTERS, "{id}@{host}:{port}"
    number, at, address_text = text.partition("@")
    require(
        bool(at),
        setting,
        (
            f"Invalid configuration value for {setting.name}: {text}. Each entry should be in the "
            f"form `{form}`."
        ),
    )
    is_id = _NODE_ID.fullmatch(number) is not None and int(number) <= _MAX_NODE_ID
    require(is_id, setting, f"Failed to parse voter ID as an integer from {number} in {text}")
    address = _parse_address(address_text, text, setting, form)
    require(
        address.host != "0.0.0.0", setting, f"Host string (0.0.0.0) is not routeable, in {text}"
    )
    return Voter(NodeId(int(number)), address)


def _parse_address(text: str, entry: str, setting: Setting[tuple[str, ...]], form: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None or not match[1] or not 1 <= int(match[2]) <= MAX_PORT:
        reason = (
            f"Failed to parse host name and port from entry {entry} for the configuration "
            f"{setting.name}."
        )
        raise InconsistentSettingsError(
            setting,
            (
                f"{reason} Each entry should be in the form `{form}`, with a port from 1 to "
                f"{MAX_PORT}."
            ),
        )
    return Address(match[1], int(match[2]))
