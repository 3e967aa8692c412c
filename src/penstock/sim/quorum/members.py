"""Changes of the voters in a quorum run (KIP-853): controllers join, leave, and are replaced by
empty ones, while everything else goes wrong.

What is not promised is not done: a controller is emptied, or a voter removed, only if in every
voter set that may be in effect a majority of the voters still has its directory. A controller that
is down keeps its directory, and returns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.config.meta_properties import META_PROPERTIES, decode_meta_properties
from penstock.node.quorum.initial_voters import InitialVoters
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.raft.voters import (
    RECONFIGURATION_LEVEL,
    Endpoint,
    ReplicaKey,
    Voter,
    VotersEntry,
    VoterSet,
)

if TYPE_CHECKING:
    from penstock.sim.quorum.run import ObservedQuorum, QuorumRun

# Voters that a run does not exceed.
MOST_VOTERS = 5
FEWEST_AT_THE_END = 3


class Members:
    """`first` are the voters of the bootstrap checkpoint; all other controllers join later."""

    def __init__(self, run: QuorumRun, rng: random.Random, port: int) -> None:
        self._run = run
        self._rng = rng
        ids = list(run.ids)[: rng.choice((1, 3, 3, 4))]
        self.first = VoterSet.of(
            Voter(
                node_id,
                UUID(int=rng.getrandbits(120) + 2**120),
                (Endpoint("CONTROLLER", f"c{node_id}", port),),
                max_version=1,
            )
            for node_id in ids
        )
        # The identity of each controller, and identities whose directory is gone.
        self.keys: dict[int, ReplicaKey] = {}
        self.lost: set[ReplicaKey] = set()
        # Controllers that a leader was asked to add, until it has answered.
        self._joining: list[Voter] = []
        self.added = 0
        self.removed = 0
        # Voters that shall be replaced by others; none while faults occur.
        self.leaving: set[ReplicaKey] = set()

    # Formatting

    def initial(self, node_id: int) -> InitialVoters:
        """Return how a controller is formatted. One that was emptied is formatted to join."""
        is_first = node_id in self.first.ids and node_id not in self.keys
        return InitialVoters(voters=self.first if is_first else None)

    def formatted(self, node_id: int) -> None:
        """Note the identity of a controller that was just formatted."""
        path = f"/d/{META_PROPERTIES}"
        meta = decode_meta_properties(self._run.nodes[node_id].world.disk.read(path), path)
        assert meta.directory_id is not None
        if node_id in self.keys:
            self.lost.add(self.keys[node_id])
            self._run.histories.pop(node_id, None)
        self.keys[node_id] = ReplicaKey(node_id, meta.directory_id)

    # What may be lost

    def may_lose(self, node_id: int) -> bool:
        """Return True if the quorum tolerates that a controller loses its directory now."""
        lost = {*self.lost, self.keys[node_id]}
        return all(
            _has_majority(voters, lost)
            for before in self._voter_sets()
            for voters in (before, *self._with_joining(before))
        )

    def _with_joining(self, voters: VoterSet) -> Iterator[VoterSet]:
        """Yield the voter sets that a leader may be about to write: it adds one voter at a time."""
        yield from (voters.add(voter) for voter in self._joining if voter.id not in voters.ids)

    def _voter_sets(self) -> Iterator[VoterSet]:
        """Yield the voter sets that may be in effect: the last committed one, and all later ones in
        any log. Logs of processes that ended count: their nodes return."""
        # A controller that has not opened its log yet has the bootstrap checkpoint.
        entries = [VotersEntry(-1, RECONFIGURATION_LEVEL, self.first)]
        entries += [
            entry
            for history in self._run.histories.values()
            for entry in history.entries
            if entry.voters.voters
        ]
        committed = self._run.history.highest_offset
        newest = max((entry.offset for entry in entries if entry.offset <= committed), default=-1)
        yield from (entry.voters for entry in entries if entry.offset >= newest)

    @property
    def is_settled(self) -> bool:
        """True if a leader knows enough voters, and no voter whose directory is gone."""
        leaders = [quorum for quorum in self._run.quorums.values() if quorum.is_leader]
        return any(
            not self.lost & set(leader.voter_set.keys)
            and not self.leaving & set(leader.voter_set.keys)
            and len(leader.voter_set.ids) >= FEWEST_AT_THE_END
            for leader in leaders
        )

    # Changes

    async def change(self, quorum: ObservedQuorum) -> None:
        """Change the voters while this node leads, sometimes with two requests at once."""
        while True:
            await asyncio.sleep(self._rng.random() * 1.5)
            if quorum.is_leader and not (self._run.is_settling and self.is_settled):
                requests = self._rng.choice((1, 1, 2))
                await asyncio.gather(*(self._change_one(quorum) for _ in range(requests)))

    async def change_at_once(self, quorum: ObservedQuorum) -> None:
        """Ask a leader that has just been elected, before it has committed anything."""
        if self._rng.random() < 0.5 and not self._run.faults.are_over:
            await self._change_one(quorum)

    async def _change_one(self, quorum: ObservedQuorum) -> None:
        voters = quorum.voter_set
        removable = [
            key for key in voters.keys if self._stays_available(voters.remove(key) or voters)
        ]
        gone = [key for key in removable if key in self.lost or key in self.leaving]
        addable = [
            node_id
            for node_id, key in self.keys.items()
            if node_id not in voters.ids
            and node_id in self._run.quorums
            and key not in self.leaving
        ]
        is_over = self._run.faults.are_over
        if gone and (len(voters.ids) > FEWEST_AT_THE_END or not addable or not self.leaving):
            await self._remove(quorum, self._rng.choice(gone))
        elif addable and len(voters.ids) < MOST_VOTERS and (is_over or self._rng.random() < 0.6):
            await self._add(quorum, self._rng.choice(addable))
        elif removable and not is_over and len(voters.ids) > 1:
            await self._remove(quorum, self._rng.choice(removable))

    def _stays_available(self, voters: VoterSet) -> bool:
        return bool(voters.voters) and _has_majority(voters, self.lost)

    async def _add(self, quorum: ObservedQuorum, node_id: int) -> None:
        local = self._run.quorums[node_id].local
        request = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=local.id,
            voter_directory_id=local.directory_id,
            listeners=tuple(
                AddRaftVoterRequest.Listener(name=name, host=host, port=port)
                for name, host, port in local.endpoints
            ),
            ack_when_committed=self._rng.random() < 0.8,
        )
        self._joining.append(local)
        try:
            response = await quorum.add_raft_voter(request)
        finally:
            self._joining.remove(local)
        self.added += not response.error_code
        self._run.trace.note("add", node_id, response.error_code)

    async def _remove(self, quorum: ObservedQuorum, key: ReplicaKey) -> None:
        response = await quorum.remove_raft_voter(
            RemoveRaftVoterRequest(
                cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id
            )
        )
        self.removed += not response.error_code
        self._run.trace.note("remove", key.id, response.error_code)


def _has_majority(voters: VoterSet, lost: set[ReplicaKey]) -> bool:
    return sum(key not in lost for key in voters.keys) >= voters.majority
