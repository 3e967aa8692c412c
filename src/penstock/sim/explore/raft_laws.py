"""The laws of the raft explorer, checked over all nodes of a walk (rules 16, 17 and 18).

Entries are checked as they are appended and committed, so each check costs the same however long
the logs are: that two logs match follows by induction from each entry having one predecessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import ElectionState, VoteRequest
from penstock.sim.explore.raft_log import Entry
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
RECOVERY = "the quorum recovers"


class RaftLaws:
    def __init__(self, voters: tuple[int, ...]) -> None:
        self._voters = voters
        self.leaders: dict[int, int] = {}
        # (node, epoch) -> candidate
        self._votes: dict[tuple[int, int], int] = {}
        # (epoch, offset) -> entry and the entry before it
        self._positions: dict[tuple[int, int], tuple[Entry, Entry | None]] = {}
        # All that was ever committed. `_commits` has, in the same order, the end offset and the
        # epoch of the leader at each advance.
        self.committed: list[Entry] = []
        self._commits: list[tuple[int, int]] = []

    # Elections

    def granted(self, node: int, epoch: int, candidate: int, saved: ElectionState) -> None:
        if (saved.epoch, saved.voted_id) != (epoch, candidate):
            raise LawBroken(
                SAVED_FIRST,
                f"node {node} voted for {candidate} in epoch {epoch}, and its disk has {saved}",
            )
        other = self._votes.setdefault((node, epoch), candidate)
        if other != candidate:
            raise LawBroken(
                ELECTION_SAFETY,
                f"node {node} voted for {other} and for {candidate} in epoch {epoch}",
            )

    def requested(self, node: int, request: VoteRequest, saved: ElectionState) -> None:
        if not request.pre_vote:
            self.granted(node, request.epoch, node, saved)

    def mentioned(self, node: int, epoch: int, saved: ElectionState) -> None:
        if epoch > saved.epoch:
            raise LawBroken(
                SAVED_FIRST, f"node {node} mentioned epoch {epoch}, and its disk has {saved}"
            )

    def elected(self, node: RaftNode, epoch: int) -> None:
        """A node leads an epoch: it has everything that leaders of earlier epochs committed."""
        other = self.leaders.setdefault(epoch, node.id)
        if other != node.id:
            raise LawBroken(ELECTION_SAFETY, f"nodes {other} and {node.id} lead epoch {epoch}")
        for end, commit_epoch in reversed(self._commits):
            if commit_epoch < epoch:
                if not self._has(node, end - 1):
                    raise LawBroken(
                        LEADER_COMPLETENESS,
                        f"node {node.id} leads epoch {epoch} without the entry at {end - 1}, which "
                        f"the leader of epoch {commit_epoch} committed",
                    )
                break

    def _has(self, node: RaftNode, offset: int) -> bool:
        log = node.log
        return offset < log.start_offset or log.entry(offset) == self.committed[offset]

    # Logs

    def appended(self, node: int, offset: int, entry: Entry, before: Entry | None) -> None:
        """`before` is None if the entry before is not in the log."""
        known = self._positions.setdefault((entry[0], offset), (entry, before))
        if known[0] != entry or (None not in (before, known[1]) and before != known[1]):
            raise LawBroken(
                LOG_MATCHING,
                f"node {node} appended {entry} after {before} at {offset}, and another node "
                f"{known[0]} after {known[1]}",
            )

    # Commits

    def led_commit(
        self, nodes: dict[int, RaftNode], leader: RaftNode, epoch: int, end: int
    ) -> None:
        """A leader advanced its high watermark: a majority has the entry on disk."""
        entry = leader.log.entry(end - 1)
        on_disk = sum(
            nodes[voter].log.synced_end >= end
            and (nodes[voter].log.start_offset >= end or nodes[voter].log.entry(end - 1) == entry)
            for voter in self._voters
        )
        if on_disk * 2 <= len(self._voters):
            raise LawBroken(
                DURABILITY,
                f"node {leader.id} committed up to {end} in epoch {epoch}, but only {on_disk} of "
                f"{len(self._voters)} voters have it on disk",
            )
        self.check_commit_rule(leader.id, epoch, end, entry)

    def check_commit_rule(self, leader: int, epoch: int, end: int, entry: Entry | None) -> None:
        if entry is not None and entry[0] != epoch:
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
            or self.committed[snapshot.offset - 1][0] != snapshot.epoch
        ):
            raise LawBroken(
                STATE_MACHINE_SAFETY,
                f"node {node} loaded {snapshot}, and {len(self.committed)} entries are committed",
            )
