"""The laws of the raft explorer, checked over all nodes of a walk (rules 16, 17, 18 and 19).

Entries are checked as they are appended and committed, so each check costs the same however long
the logs are: that two logs match follows by induction from each entry having one predecessor.

A replica is known by its id and directory id: a node whose disk was emptied is another replica.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.ids import NO_UUID
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import ElectionState, VoteRequest
from penstock.raft.states import UnattachedState
from penstock.raft.voters import ReplicaKey, VoterSet
from penstock.sim.explore.raft_log import Entry, MemoryLog
from penstock.sim.explore.walk import LawBroken

if TYPE_CHECKING:
    from penstock.sim.explore.raft_node import RaftNode

ELECTION_SAFETY = "election safety"
LOG_MATCHING = "log matching"
LEADER_COMPLETENESS = "leader completeness"
STATE_MACHINE_SAFETY = "state machine safety"
DURABILITY = "committed by a majority"
COMMIT_RULE = "no earlier epoch is committed by counting"
SAVED_FIRST = "epochs and votes are saved first"
ELECTED_BY_VOTERS = "the newest voters elect"
WIPED_VOTER = "a wiped voter is a new voter"
ONE_CHANGE = "one uncommitted change of the voters"
ONE_VOTER = "one voter is added or removed"
STANDS = "a removed voter stands until its removal is committed"
CHANGE_RULE = "no change of the voters before a commit in the epoch"
RECOVERY = "the quorum recovers"


class RaftLaws:
    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        # (replica, epoch) -> candidate
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        # The logs of replicas whose disk was emptied, as they were then.
        self.lost: dict[ReplicaKey, MemoryLog] = {}
        self.nodes: dict[int, RaftNode] = {}
        # (epoch, offset) -> entry and the entry before it
        self._positions: dict[tuple[int, int], tuple[Entry, Entry | None]] = {}
        # All that was ever committed. `_commits` has, in the same order, the end offset and the
        # epoch of the leader at each advance.
        self.committed: list[Entry] = []
        self._commits: list[tuple[int, int]] = []

    # Elections

    def granted(self, node: RaftNode, candidate: ReplicaKey, request: VoteRequest) -> None:
        """A node granted its vote: it was requested from this replica, not from one that had the
        node's id before its disk was emptied."""
        if request.voter_directory_id not in (NO_UUID, node.local.directory_id):
            raise LawBroken(
                WIPED_VOTER,
                f"node {node.id}, which is {node.local.key}, voted in epoch {request.epoch} as "
                f"directory {request.voter_directory_id}",
            )
        self._voted(node, candidate, request.epoch)

    def requested(self, node: RaftNode, request: VoteRequest) -> None:
        if not request.pre_vote:
            self._voted(node, node.local.key, request.epoch)

    def _voted(self, node: RaftNode, candidate: ReplicaKey, epoch: int) -> None:
        saved = node.saved
        if (saved.epoch, saved.voted_id, saved.voted_directory_id) != (epoch, *candidate):
            raise LawBroken(
                SAVED_FIRST,
                f"node {node.id} voted for {candidate.id} in epoch {epoch}, and its disk has "
                f"{saved}",
            )
        other = self._votes.setdefault((node.local.key, epoch), candidate)
        if other != candidate:
            raise LawBroken(
                ELECTION_SAFETY,
                f"node {node.id} voted for {other.id} and for {candidate.id} in epoch {epoch}",
            )

    def mentioned(self, node: int, epoch: int, saved: ElectionState) -> None:
        if epoch > saved.epoch:
            raise LawBroken(
                SAVED_FIRST, f"node {node} mentioned epoch {epoch}, and its disk has {saved}"
            )

    def elected(self, node: RaftNode, epoch: int) -> None:
        """A node leads an epoch: it has everything that leaders of earlier epochs committed, and a
        majority of the newest voters in its log voted for it."""
        leader = node.local.key
        other = self.leaders.setdefault(epoch, leader)
        if other != leader:
            raise LawBroken(ELECTION_SAFETY, f"nodes {other.id} and {node.id} lead epoch {epoch}")
        self._check_votes(node, epoch)
        for end, commit_epoch in reversed(self._commits):
            if commit_epoch < epoch:
                if not self._has(node, end - 1):
                    raise LawBroken(
                        LEADER_COMPLETENESS,
                        f"node {node.id} leads epoch {epoch} without the entry at {end - 1}, which "
                        f"the leader of epoch {commit_epoch} committed",
                    )
                break

    def _check_votes(self, node: RaftNode, epoch: int) -> None:
        # A single voter sends no request.
        self._voted(node, node.local.key, epoch)
        voters, leader = node.step_voters, node.local.key
        granting = [
            key.id for key in self._replicas(voters) if self._votes.get((key, epoch)) == leader
        ]
        if len(granting) < voters.majority:
            raise LawBroken(
                ELECTED_BY_VOTERS,
                f"node {node.id} leads epoch {epoch} with the votes of {granting} of the voters "
                f"{list(voters.ids)}",
            )

    def _replicas(self, voters: VoterSet) -> list[ReplicaKey]:
        """Return the voters with their directory ids: those of static voters are not in the set,
        and such a voter is never emptied."""
        return [
            self.nodes[key.id].local.key if key.directory_id == NO_UUID else key
            for key in voters.keys
        ]

    def _has(self, node: RaftNode, offset: int) -> bool:
        log = node.log
        return offset < log.start_offset or log.entry(offset) == self.committed[offset]

    # Logs

    def appended(self, node: int, offset: int, entry: Entry, before: Entry | None) -> None:
        """`before` is None if the entry before is not in the log."""
        known = self._positions.setdefault((entry.epoch, offset), (entry, before))
        if known[0] != entry or (None not in (before, known[1]) and before != known[1]):
            raise LawBroken(
                LOG_MATCHING,
                f"node {node} appended {entry} after {before} at {offset}, and another node "
                f"{known[0]} after {known[1]}",
            )

    # Changes of the voters

    def change_appended(self, leader: RaftNode, voters: VoterSet, *, is_upgrade: bool) -> None:
        """A leader is about to append other voters, with the same ids in an upgrade of
        kraft.version. It has committed an entry of its epoch."""
        before = leader.log.voter_sets.latest.voters
        changed = (
            set(before.ids) ^ set(voters.ids) if is_upgrade else set(before.keys) ^ set(voters.keys)
        )
        if len(changed) > 1:
            raise LawBroken(
                ONE_VOTER,
                f"node {leader.id} changed the voters {list(before.ids)} to {list(voters.ids)}",
            )
        if changed:
            self.check_change_rule(leader)

    def check_change_rule(self, leader: RaftNode) -> None:
        assert leader.raft is not None
        epoch, end = leader.raft.epoch, leader.raft.high_watermark
        if end == 0 or self.committed[end - 1].epoch != epoch:
            raise LawBroken(
                CHANGE_RULE,
                f"node {leader.id} changes the voters in epoch {epoch}, and has committed "
                f"{end} entries, none of this epoch",
            )

    def check_uncommitted_changes(self, node: RaftNode) -> None:
        """A node appended voters: its log has at most one change of them that no node knows to be
        committed."""
        entries = node.log.voter_sets.entries
        uncommitted = [
            entry.offset
            for before, entry in pairwise(entries)
            if entry.offset >= len(self.committed) and entry.voters.keys != before.voters.keys
        ]
        if len(uncommitted) > 1:
            raise LawBroken(
                ONE_CHANGE,
                f"the log of node {node.id} has changes of the voters at {uncommitted}, and "
                f"{len(self.committed)} entries are committed",
            )

    def check_standing(self, node: RaftNode) -> None:
        """A node knows no leader. If the newest voters in its log lack it, those before had it, and
        they are not known to be committed, it starts an election: the others may need its vote, and
        are refused it because their logs are behind."""
        raft, history = node.raft, node.log.voter_sets
        if raft is None or not isinstance(raft.state, UnattachedState):
            return
        latest, key = history.latest, node.local.key
        if (
            latest.offset >= raft.high_watermark
            and not latest.voters.has(key)
            and history.before(latest.offset).voters.has(key)
            and raft.state.election_at == math.inf
        ):
            raise LawBroken(
                STANDS,
                f"node {node.id} was removed at {latest.offset}, has committed "
                f"{raft.high_watermark} entries, and starts no election",
            )

    # Commits

    def led_commit(self, leader: RaftNode, epoch: int, end: int) -> None:
        """A leader advanced its high watermark: a majority of the newest voters in its log has the
        entry on disk. The disk of a voter that was emptied had it."""
        entry, voters = leader.log.entry(end - 1), leader.step_voters
        on_disk = sum(
            log.synced_end >= end and (log.start_offset >= end or log.entry(end - 1) == entry)
            for log in map(self._log, self._replicas(voters))
        )
        if on_disk < voters.majority:
            raise LawBroken(
                DURABILITY,
                f"node {leader.id} committed up to {end} in epoch {epoch}, but only {on_disk} of "
                f"{len(voters.ids)} voters have it on disk",
            )
        self.check_commit_rule(leader.id, epoch, end, entry)

    def _log(self, key: ReplicaKey) -> MemoryLog:
        node = self.nodes[key.id]
        return node.log if node.local.key == key else self.lost[key]

    def check_commit_rule(self, leader: int, epoch: int, end: int, entry: Entry | None) -> None:
        if entry is not None and entry.epoch != epoch:
            raise LawBroken(
                COMMIT_RULE, f"node {leader} committed up to {end} in epoch {epoch}, by {entry}"
            )

    def applied(self, node: RaftNode, offset: int, entry: Entry | None, epoch: int) -> None:
        """A node applied the entry at an offset."""
        if entry is None:
            raise LawBroken(
                STATE_MACHINE_SAFETY,
                f"node {node.id} applies up to {node.applied}, and its log is "
                f"[{node.log.start_offset}, {node.log.end_offset})",
            )
        committed = self.committed
        if offset == len(committed):
            committed.append(entry)
            if self._commits and self._commits[-1][1] == epoch:
                self._commits[-1] = (offset + 1, epoch)
            else:
                self._commits.append((offset + 1, epoch))
        elif committed[offset] != entry:
            raise LawBroken(
                STATE_MACHINE_SAFETY,
                f"offset {offset} was committed as {committed[offset]}, and as {entry} on node "
                f"{node.id}",
            )

    def loaded(self, node: int, snapshot: OffsetAndEpoch) -> None:
        """A node loaded a snapshot: it covers committed entries, in their epoch."""
        if (
            snapshot.offset > len(self.committed)
            or self.committed[snapshot.offset - 1].epoch != snapshot.epoch
        ):
            raise LawBroken(
                STATE_MACHINE_SAFETY,
                f"node {node} loaded {snapshot}, and {len(self.committed)} entries are committed",
            )
