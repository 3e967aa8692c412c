"""The voters of the quorum as part of the metadata log (KIP-853).

With kraft.version 0 the voters are those of controller.quorum.voters on every node. With
kraft.version 1 they are records of the log: a KRaftVersionRecord and VotersRecords. A voter is then
identified by its id and the id of its metadata directory, so that a voter whose directory was
emptied is another voter (rule 19).

The newest voter set in a log counts, also while it is not committed. If the log is truncated, the
set before it counts again. `VoterSetHistory` has the sets of a log by offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from penstock.ids import NO_UUID, uuid_text

# The kraft.version that adds voters to the log, and the latest one that this release supports.
KRAFT_VERSION = "kraft.version"
RECONFIGURATION_LEVEL = 1
LATEST_KRAFT_VERSION = RECONFIGURATION_LEVEL


class ReplicaKey(NamedTuple):
    """Identifies a replica. The directory id of a static voter is not known: it is NO_UUID."""

    id: int
    directory_id: UUID = NO_UUID

    def __str__(self) -> str:
        directory = "<undefined>" if self.directory_id == NO_UUID else uuid_text(self.directory_id)
        return f"ReplicaKey(id={self.id}, directoryId={directory})"


class Endpoint(NamedTuple):
    """Where a voter listens. `name` is that of the listener."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, or a controller that may become one. The levels are those of kraft.version that it
    supports."""

    id: int
    directory_id: UUID = NO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    min_version: int = 0
    max_version: int = 0

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def supports(self, kraft_version: int) -> bool:
        return self.min_version <= kraft_version <= self.max_version


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Voters, ordered by id, no two with one id."""

    voters: tuple[Voter, ...]
    ids: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(voter.id for voter in self.voters))

    @staticmethod
    def of(voters: Iterable[Voter]) -> VoterSet:
        """Raises ValueError if two voters have the same id."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        if len({voter.id for voter in ordered}) < len(ordered):
            raise ValueError("two voters have the same id")
        return VoterSet(ordered)

    @staticmethod
    def static(ids: Iterable[int]) -> VoterSet:
        """Return the voters of controller.quorum.voters in their order, which determines the order
        of requests."""
        return VoterSet(tuple(Voter(voter_id) for voter_id in ids))

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.voters)

    def get(self, voter_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == voter_id), None)

    def directory_id(self, voter_id: int) -> UUID:
        """Return the directory id of a voter, NO_UUID if it is unknown."""
        voter = self.get(voter_id)
        return NO_UUID if voter is None else voter.directory_id

    def has(self, key: ReplicaKey) -> bool:
        """Return True if the replica is a voter. A static voter may have any directory."""
        voter = self.get(key.id)
        return voter is not None and voter.directory_id in (NO_UUID, key.directory_id)

    def add(self, added: Voter) -> VoterSet:
        return VoterSet.of((*self.voters, added))

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without a voter, None if no voter has this id and directory id."""
        left = tuple(voter for voter in self.voters if voter.key != key)
        return VoterSet(left) if len(left) < len(self.voters) else None

    def update(self, updated: Voter) -> VoterSet | None:
        """Return the set with other endpoints and levels of a voter, None if it is no voter."""
        if updated.key not in self.keys:
            return None
        return VoterSet(
            tuple(updated if voter.key == updated.key else voter for voter in self.voters)
        )


class VotersEntry(NamedTuple):
    """The voters from an offset of the log on. -1 is that of the configuration, and of the
    checkpoint that `penstock format` writes."""

    offset: int
    kraft_version: int
    voters: VoterSet


class VoterSetHistory:
    """The voter sets of one log, oldest first. `static` has the configured voters, which count as
    long as the log has none."""

    __slots__ = ("_entries", "_static")

    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._entries = [VotersEntry(-1, 0, static)]

    @property
    def latest(self) -> VotersEntry:
        return self._entries[-1]

    @property
    def entries(self) -> tuple[VotersEntry, ...]:
        return tuple(self._entries)

    def before(self, end_offset: int) -> VotersEntry:
        """Return the voters of the records below `end_offset`."""
        return next(
            (entry for entry in reversed(self._entries) if entry.offset < end_offset),
            self._entries[0],
        )

    def restart(self, offset: int, entry: VotersEntry | None) -> None:
        """Forget all sets but that of a snapshot whose last record is at `offset`, or of the
        bootstrap checkpoint (-1). If it has none, the configured voters count."""
        self._entries = [entry or VotersEntry(offset, 0, self._static)]

    def add_kraft_version(self, offset: int, kraft_version: int) -> None:
        self._add(VotersEntry(offset, kraft_version, self.latest.voters))

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """Only a log of kraft.version 1 has voters."""
        kraft_version = max(self.latest.kraft_version, RECONFIGURATION_LEVEL)
        self._add(VotersEntry(offset, kraft_version, voters))

    def _add(self, entry: VotersEntry) -> None:
        if entry.offset > self.latest.offset:
            self._entries.append(entry)

    def truncate(self, end_offset: int) -> None:
        """The records from `end_offset` on are removed."""
        kept = [entry for entry in self._entries if entry.offset < end_offset]
        self._entries = kept or self._entries[:1]

    def forget_before(self, start_offset: int) -> None:
        """The records below `start_offset` are in a snapshot, so the log never returns to them."""
        first = self.before(start_offset)
        self._entries = self._entries[self._entries.index(first) :]
