"""The first voters of a dynamic quorum (KIP-853): what `penstock format` and kafka-storage.sh write
into the metadata directory of a controller without controller.quorum.voters.

`--standalone` and `--initial-controllers` write a checkpoint at offset 0 with the voters, as Kafka
does. `--no-initial-controllers` writes a quorum-state without a vote: the controller joins a quorum
that exists, and never starts one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.config.listeners import MAX_PORT
from penstock.config.node import NodeConfig
from penstock.ids import RESERVED_UUIDS, parse_uuid
from penstock.limits import MAX_VOTERS
from penstock.node.quorum.quorum_state_store import QUORUM_STATE, quorum_state_content
from penstock.node.quorum.snapshot_file import bootstrap_checkpoint
from penstock.node.quorum.snapshot_store import BOOTSTRAP, checkpoint_name
from penstock.protocol.internal.quorum_state import QuorumStateData
from penstock.raft.voters import LATEST_KRAFT_VERSION, Endpoint, Voter, VoterSet

_ENTRY = re.compile(r"([0-9]{1,10})@(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5}):([A-Za-z0-9_-]{22})")
_MAX_ID = 2**31 - 1


class InitialVotersError(Exception):
    """The reason why a controller cannot be formatted so."""


class InitialVoters(NamedTuple):
    """The choice of the operator: `standalone`, or the voters of --initial-controllers, or neither
    (--no-initial-controllers)."""

    standalone: bool = False
    voters: VoterSet | None = None

    @property
    def are_given(self) -> bool:
        return self.standalone or self.voters is not None

    def directory_id(self, node_id: int) -> UUID | None:
        """Return the directory id that --initial-controllers gives this node."""
        voter = None if self.voters is None else self.voters.get(node_id)
        return None if voter is None else voter.directory_id

    def files(self, config: NodeConfig, directory_id: UUID) -> Mapping[str, bytes]:
        """Return the files of the metadata log's directory, by name."""
        if not self.are_given:
            return {QUORUM_STATE: quorum_state_content(QuorumStateData(leader_epoch=0), 1)}
        voters = self.voters or VoterSet((_standalone_voter(config, directory_id),))
        return {checkpoint_name(BOOTSTRAP): bootstrap_checkpoint(voters, timestamp=0)}


def choose_initial_voters(
    config: NodeConfig, *, standalone: bool, initial_controllers: str | None, none: bool
) -> InitialVoters | None:
    """Return the choice for a controller of a dynamic quorum, None for any other node. Raises
    InitialVotersError if the options contradict the configuration."""
    if sum((standalone, initial_controllers is not None, none)) > 1:
        raise InitialVotersError(
            "Give only one of --standalone, --initial-controllers and --no-initial-controllers."
        )
    if standalone and not config.is_controller:
        raise InitialVotersError("You cannot use --standalone on a broker node.")
    if config.voters and (standalone or initial_controllers is not None):
        raise InitialVotersError(
            "You cannot use --standalone or --initial-controllers if controller.quorum.voters is "
            "set: those voters are the quorum. For a dynamic quorum, remove "
            "controller.quorum.voters and set controller.quorum.bootstrap.servers."
        )
    if config.voters or not config.is_controller:
        return None
    if not (standalone or initial_controllers is not None or none):
        raise InitialVotersError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    if initial_controllers is None:
        return InitialVoters(standalone)
    name = config.controller_listener_names[0]
    voters = parse_initial_controllers(initial_controllers, name)
    if config.node_id not in voters.ids:
        raise InitialVotersError(
            f"--initial-controllers has no controller with the id {config.node_id} of this node. "
            "Format a controller that joins later with --no-initial-controllers."
        )
    return InitialVoters(voters=voters)


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """Parse id@host:port:directoryId, separated by commas. Raises InitialVotersError."""
    voters = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match[1]) > _MAX_ID or not 0 < int(match[4]) <= MAX_PORT:
            raise InitialVotersError(
                f"{entry!r} of --initial-controllers is not of the form id@host:port:directoryId"
            )
        try:
            directory_id = parse_uuid(match[5])
        except ValueError as error:
            raise InitialVotersError(f"{entry!r} of --initial-controllers: {error}") from error
        if directory_id.int < RESERVED_UUIDS:
            raise InitialVotersError(f"the directory id of {entry!r} is reserved")
        endpoint = Endpoint(listener, match[2] or match[3], int(match[4]))
        voters.append(
            Voter(int(match[1]), directory_id, (endpoint,), max_version=LATEST_KRAFT_VERSION)
        )
    if not 0 < len(voters) <= MAX_VOTERS:
        raise InitialVotersError(f"--initial-controllers has {len(voters)} controllers")
    try:
        return VoterSet.of(voters)
    except ValueError as error:
        raise InitialVotersError(f"--initial-controllers: {error}") from error


def _standalone_voter(config: NodeConfig, directory_id: UUID) -> Voter:
    """The leader writes other endpoints when it starts, if it listens elsewhere then."""
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    endpoints = tuple(
        Endpoint(found.name, found.host or "localhost", found.port)
        for listener in config.controller_listeners
        for found in [advertised.get(listener.name, listener)]
    )
    return Voter(config.node_id, directory_id, endpoints, max_version=LATEST_KRAFT_VERSION)
