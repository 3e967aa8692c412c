"""Walks over the raft machine: several nodes, a network that loses, delays, repeats and reorders
messages, crashes that lose the unsynced tail of the log, snapshots. `raft_laws` has the laws. In
the walks of `VOTERS` the voters change (`raft_members`).

Each node has its own clock: a tick advances it to the machine's deadline, so timeouts expire in any
order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import count

from penstock.errors import ErrorCode
from penstock.raft.messages import (
    Appended,
    FetchSnapshot,
    RequestFailed,
    ResponseReceived,
    SnapshotPieceServed,
    SnapshotProgress,
    SupportedVersionsReceived,
    Tick,
)
from penstock.raft.voters import LATEST_KRAFT_VERSION, Voter, VoterSet
from penstock.sim.explore.raft_laws import RECOVERY, RaftLaws
from penstock.sim.explore.raft_log import MemoryLog
from penstock.sim.explore.raft_members import Members
from penstock.sim.explore.raft_node import Download, Message, RaftNode, VersionsQuestion
from penstock.sim.explore.walk import Choices, Explorer, LawBroken

OBSERVER = 9
TURNS = 1_500
# The quorum must elect a leader and commit an entry everywhere within so many rounds of messages.
RECOVERY_ROUNDS = 3_000
_ROUNDING_S = 1e-6


class RaftWalk:
    def __init__(self, choices: Choices, *, change_voters: bool = False) -> None:
        self.choices = choices
        self.lines: list[str] | None = None
        self.voters = tuple(range(1, (3, 3, 5, 3, 4, 2)[choices.below(6)] + 1))
        self.members = Members(self, choices) if change_voters else None
        self.laws = RaftLaws()
        self.network: list[Message | Download | VersionsQuestion] = []
        self.fetch_entries = (1, 1, 2, 100)[choices.below(4)]
        # Percentages: of messages lost, of messages delivered out of order, of turns with a fault.
        self._lost = (2, 8, 20)[choices.below(3)]
        self._reordered = (0, 30, 60)[choices.below(3)]
        self._faults = (2, 6, 12)[choices.below(3)]
        self._ticks = (4, 10)[choices.below(2)]
        self._isolated: int | None = None
        self._numbers = count(1)
        self.truncations = self.installed = self.snapshots = self.changes = 0
        observers = (OBSERVER,) if choices.below(2) else ()
        ids = self.voters if self.members is None else self.members.ids
        self.nodes = {number: RaftNode(self, number) for number in (*ids, *observers)}
        self.laws.nodes = self.nodes
        self._nodes = list(self.nodes.values())
        for node in self._nodes:
            node.start()

    def new_number(self) -> int:
        return next(self._numbers)

    # How nodes are configured

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return () if self.members is None else self.members.ids

    @property
    def auto_join(self) -> bool:
        return self.members is not None and self.members.auto_join

    def voter(self, node_id: int) -> Voter:
        """Return a node with an empty disk."""
        if self.members is None or node_id == OBSERVER:
            return Voter(node_id)
        return self.members.format(node_id)

    def new_log(self, local: Voter) -> MemoryLog:
        if self.members is None:
            return MemoryLog(VoterSet.static(self.voters))
        return self.members.new_log(local)

    def note(self, *parts: object) -> None:
        if self.lines is not None:
            self.lines.append(" ".join(map(str, parts)))

    def counts(self) -> dict[str, int]:
        return {
            "elections": len(self.laws.leaders),
            "truncations": self.truncations,
            "committed": len(self.laws.committed),
            "snapshots": self.snapshots,
            "installed": self.installed,
            **({} if self.members is None else {"changes": self.changes}),
        }

    def close(self) -> None: ...

    # Turns

    def turn(self) -> None:
        if self.members is not None and self.members.change():
            return
        dice = self.choices.below(100)
        if dice < self._faults:
            self._fault()
        elif dice < self._faults + self._ticks:
            self._tick(self._any_of(self._nodes))
        elif dice < 30:
            syncing = [node for node in self._nodes if node.sync_end is not None]
            if syncing:
                self._finish_sync(self._any_of(syncing))
            else:
                self._deliver_or_wait()
        elif dice < 40:
            leaders = [node for node in self._nodes if node.is_leader]
            if leaders:
                self._append(self._any_of(leaders))
            else:
                self._deliver_or_wait()
        else:
            self._deliver_or_wait()

    def _any_of(self, nodes: list[RaftNode]) -> RaftNode:
        return nodes[self.choices.below(len(nodes))]

    def _deliver_or_wait(self) -> None:
        if self.network:
            self._deliver()
        else:
            self._wait()

    def _finish_sync(self, node: RaftNode) -> None:
        self.note(node.id, "finishes its sync of", node.sync_end)
        node.finish_sync()

    def _tick(self, node: RaftNode) -> None:
        if node.raft is not None and (deadline := node.raft.deadline) < math.inf:
            node.now = max(node.now, deadline)
            self.note(node.id, "ticks in", type(node.raft.state).__name__)
            node.deliver(Tick())

    def _append(self, node: RaftNode) -> None:
        if node.append(self.new_number()):
            self.note(node.id, "appends", node.log.entries[-1], "at", node.log.end_offset - 1)
            node.deliver(Appended())

    def _fault(self) -> None:
        dice, node = self.choices.below(20), self._any_of(self._nodes)
        if dice > 17:
            node = next((node for node in self._nodes if node.raft is None), node)
        if node.raft is None:
            self.note(node.id, "starts")
            node.start()
        elif dice < 3:
            kept = None if dice == 0 else self.choices.below(4)
            self.note(node.id, "crashes", "" if kept is None else f"and loses power, keeps {kept}")
            node.crash(kept)
            if node.id == OBSERVER and self.choices.below(3) == 0:
                self.note(node.id, "is wiped")
                node.wipe()
            elif self.members is not None and node.id != OBSERVER:
                self.members.crashed(node)
        elif dice < 5:
            node.effects_left = self.choices.below(6)
        elif dice < 14:
            if node.take_snapshot():
                self.snapshots += 1
                self.note(node.id, "takes snapshot", node.log.latest_snapshot)
        elif dice < 15:
            node.save_committed()
        elif dice < 16:
            self.note(node.id, "resigns")
            node.resign()
        else:
            self._isolated = node.id if self._isolated is None else None
            self.note("isolated:", self._isolated)

    # The network

    def _deliver(self) -> None:
        choices, network = self.choices, self.network
        index = choices.below(len(network)) if choices.below(100) < self._reordered else 0
        message = network.pop(index)
        is_lost = choices.below(100) < self._lost
        if isinstance(message, Download):
            self._download(message, is_lost)
        elif isinstance(message, VersionsQuestion):
            self._answer_versions(message, is_lost)
        elif message.has_failed:
            self._fail(message)
        elif message.response is not None:
            self._respond(message, is_lost)
        else:
            self._request(message, is_lost)

    def _is_cut(self, first: int, second: int) -> bool:
        return self._isolated is not None and self._isolated in (first, second)

    def _request(self, message: Message, is_lost: bool) -> None:
        """Deliver a request. The sender of a lost one learns so, or gives up while the request is
        still under way."""
        sender, destination = message.sender, self.nodes[message.destination]
        is_lost = is_lost or self._is_cut(sender, destination.id)
        if is_lost and not message.is_orphan and self.choices.below(3) == 0:
            self.network.append(message._replace(is_orphan=True))
        if is_lost or destination.raft is None:
            if not message.is_orphan:
                self._fail(message)
            return
        if self.choices.below(40) == 0:
            self.network.append(message._replace(is_orphan=True))
        self.note(sender, "->", destination.id, message.request)
        destination.receive(message)

    def _respond(self, message: Message, is_lost: bool) -> None:
        node, response = self.nodes[message.sender], message.response
        if node.life != message.life or response is None:
            return
        if is_lost or self._is_cut(message.sender, message.destination):
            self._fail(message)
        else:
            self.note(message.destination, "=>", message.sender, response)
            node.deliver(ResponseReceived(message.destination, message.request, response))

    def _fail(self, message: Message) -> None:
        node = self.nodes[message.sender]
        if node.life == message.life:
            self.note(
                message.sender, "-x", message.destination, type(message.request).__name__, "fails"
            )
            node.deliver(RequestFailed(message.destination, message.request))

    def _download(self, download: Download, is_lost: bool) -> None:
        node, effect = self.nodes[download.node], download.effect
        if node.life != download.life:
            return
        progress = SnapshotProgress(effect.leader_id, effect.epoch, effect.snapshot)
        if is_lost or not self._serves(effect, node.id):
            self.note(node.id, "fails to fetch", effect.snapshot)
            node.deliver(replace(progress, failed=True))
            return
        leader = self.nodes[effect.leader_id]
        leader.deliver(SnapshotPieceServed(node.id, effect.epoch, node.local.directory_id))
        if download.parts > 1:
            self.network.append(download._replace(parts=download.parts - 1))
            node.deliver(progress)
        else:
            self.note(node.id, "has fetched", effect.snapshot)
            node.log.add_snapshot(effect.snapshot, leader.log.snapshot_voters(effect.snapshot))
            node.deliver(replace(progress, done=True))

    def _answer_versions(self, question: VersionsQuestion, is_lost: bool) -> None:
        node, asked = self.nodes[question.node], self.nodes[question.voter.id]
        if node.life != question.life:
            return
        is_lost = is_lost or asked.raft is None or self._is_cut(node.id, asked.id)
        levels = None if is_lost else (0, LATEST_KRAFT_VERSION)
        node.deliver(SupportedVersionsReceived(question.voter.key, levels))

    def _serves(self, effect: FetchSnapshot, node_id: int) -> bool:
        leader = self.nodes[effect.leader_id]
        return (
            leader.raft is not None
            and not self._is_cut(leader.id, node_id)
            and leader.raft.validate_leader_epoch(effect.epoch) is ErrorCode.NONE
            and effect.snapshot in leader.log.snapshots
        )

    # Recovery

    def end(self) -> None:
        """All nodes run, and no message is lost: an entry is committed and applied everywhere, and
        with it all that was committed before."""
        self._lost = self._reordered = 0
        self._isolated = None
        nodes = self._nodes
        for node in nodes:
            node.effects_left = None
            if node.raft is None:
                node.start()
        target: int | None = None
        for _round in range(RECOVERY_ROUNDS):
            for _message in range(len(self.network)):
                self._deliver()
            for node in nodes:
                node.finish_sync()
            if target is not None and all(node.applied >= target for node in nodes):
                return
            if target is None:
                leader = next((node for node in nodes if node.is_leader), None)
                if leader is not None and leader.applied == leader.log.end_offset:
                    self._append(leader)
                    target = leader.log.end_offset
            elif target > max(node.log.end_offset for node in nodes):
                target = None
            if not self.network:
                self._wait()
        states = {
            node.id: (type(node.raft and node.raft.state).__name__, node.applied, node.log.end)
            for node in nodes
        }
        raise LawBroken(RECOVERY, f"no entry was committed everywhere: {states}")

    def _wait(self) -> None:
        """Let time pass on all nodes until the next deadline."""
        running = [(node, node.raft) for node in self._nodes if node.raft is not None]
        seconds = max(min((raft.deadline - node.now for node, raft in running), default=0.0), 0.0)
        if seconds == math.inf:
            return
        for node, raft in running:
            node.now += seconds + _ROUNDING_S
            if raft.deadline <= node.now:
                node.deliver(Tick())


RAFT = Explorer("raft", TURNS, RaftWalk)
VOTERS = Explorer("voters", TURNS, partial(RaftWalk, change_voters=True))
