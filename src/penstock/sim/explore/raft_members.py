"""Changes of the voters in walks over the raft machine (KIP-853): controllers join, leave, announce
other endpoints, and lose their disk.

A quarter of the walks begins with kraft.version 0 and raises it. In a third of the walks
controllers join by themselves (controller.quorum.auto.join.enable).

What is not promised is not done: a controller is emptied, or a voter removed, only if in every
voter set that may be in effect a majority of the voters still has its disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    UpgradeKRaftVersionRequest,
)
from penstock.raft.voters import LATEST_KRAFT_VERSION, Endpoint, ReplicaKey, Voter, VoterSet
from penstock.sim.explore.raft_log import MemoryLog
from penstock.sim.explore.raft_node import Message, RaftNode
from penstock.sim.explore.walk import Choices

if TYPE_CHECKING:
    from penstock.sim.explore.raft import RaftWalk

CONTROLLERS = 5
_CLIENT = -1


class Members:
    """`first` are the ids of the first voters; all other controllers join later."""

    def __init__(self, walk: RaftWalk, choices: Choices) -> None:
        self._walk = walk
        self._choices = choices
        self.ids = tuple(range(1, CONTROLLERS + 1))
        self._first = self.ids[: (3, 2, 3, 4, 1)[choices.below(5)]]
        self.auto_join = choices.below(3) == 0
        self._is_static = choices.below(4) == 0
        # A percentage of turns.
        self._changes = (3, 8, 15)[choices.below(3)]
        self._numbers = count(1)
        self._first_voters = VoterSet.of(self._new_voter(node_id) for node_id in self._first)
        self._formatted: set[int] = set()

    # Formatting

    def _new_voter(self, node_id: int) -> Voter:
        number = next(self._numbers)
        endpoint = Endpoint("CONTROLLER", f"c{node_id}", number)
        return Voter(node_id, UUID(int=number), (endpoint,), 0, LATEST_KRAFT_VERSION)

    def format(self, node_id: int) -> Voter:
        """Return a controller with a new directory, the first time that of the first voters."""
        voter = None if node_id in self._formatted else self._first_voters.get(node_id)
        self._formatted.add(node_id)
        return voter or self._new_voter(node_id)

    def new_log(self, local: Voter) -> MemoryLog:
        """Return the empty log of a controller: only the first voters have the bootstrap checkpoint
        with their ids."""
        if self._is_static:
            return MemoryLog(VoterSet.static(self._first))
        is_first = self._first_voters.get(local.id) == local
        return MemoryLog(VoterSet(()), self._first_voters if is_first else None)

    # Faults

    def crashed(self, node: RaftNode) -> None:
        """A controller that crashed may return with another endpoint, or with an empty disk."""
        dice = self._choices.below(6)
        if dice == 0:
            endpoint = Endpoint("CONTROLLER", f"c{node.id}", next(self._numbers))
            node.local = replace(node.local, endpoints=(endpoint,))
        elif dice < 3 and not self._is_static and self._may_lose(node.local.key):
            self._walk.note(node.id, "is wiped")
            node.wipe()

    def _may_lose(self, key: ReplicaKey) -> bool:
        lost = {*self._walk.laws.lost, key}
        return not self._is_being_added(key) and all(
            _has_majority(voters, lost) for voters in self._voter_sets()
        )

    def _is_being_added(self, key: ReplicaKey) -> bool:
        """Return True if a leader may still make this replica a voter."""
        walk = self._walk
        requests: list[object] = [
            message.request for message in walk.network if isinstance(message, Message)
        ]
        requests += [
            message.request for node in walk.nodes.values() for message in node.unanswered.values()
        ]
        return any(
            isinstance(request, AddVoterRequest) and request.voter.key == key
            for request in requests
        )

    def _voter_sets(self) -> Iterator[VoterSet]:
        """Yield the voter sets that may be in effect: the last committed one, and all later ones in
        any log, also of nodes that are down."""
        histories = [node.log.voter_sets.entries for node in self._walk.nodes.values()]
        entries = [entry for history in histories for entry in history if entry.voters.voters]
        committed = len(self._walk.laws.committed)
        newest = max((entry.offset for entry in entries if entry.offset < committed), default=-1)
        yield from (entry.voters for entry in entries if entry.offset >= newest)

    # Changes

    def change(self) -> bool:
        """Ask a leader to change the voters in some of the turns. Return False in the others."""
        choices = self._choices
        leaders = [node for node in self._walk.nodes.values() if node.is_leader]
        if not leaders or choices.below(100) >= self._changes:
            return False
        leader = leaders[choices.below(len(leaders))]
        request = self._request(leader)
        if request is None:
            return False
        self._walk.note("a client asks", leader.id, "for", request)
        leader.receive(Message(_CLIENT, 0, leader.id, request, is_orphan=True))
        return True

    def _request(self, leader: RaftNode) -> Request | None:
        choices, latest = self._choices, leader.log.voter_sets.latest
        voters = latest.voters
        if not latest.kraft_version:
            return UpgradeKRaftVersionRequest(LATEST_KRAFT_VERSION)
        lost = self._walk.laws.lost
        removable = [
            key
            for key in voters.keys
            if (left := voters.remove(key)) and left.voters and _has_majority(left, set(lost))
        ]
        gone = [key for key in removable if key in lost]
        addable = [self._walk.nodes[each] for each in self.ids if each not in voters.ids]
        if gone and choices.below(2):
            return RemoveVoterRequest(gone[choices.below(len(gone))])
        if addable and choices.below(2):
            added = addable[choices.below(len(addable))].local
            return AddVoterRequest(added, ack_when_committed=choices.below(3) > 0)
        if leader.local.key in removable and choices.below(2):
            return RemoveVoterRequest(leader.local.key)
        return RemoveVoterRequest(removable[choices.below(len(removable))]) if removable else None


def _has_majority(voters: VoterSet, lost: set[ReplicaKey]) -> bool:
    return sum(key not in lost for key in voters.keys) >= voters.majority
