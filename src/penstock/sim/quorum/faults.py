"""The faults of quorum runs: crashes, power loss of one node or of several, network partitions
(also one-way), cut connections, low bandwidth, pauses, slow nodes, slow disks, clock jumps, damaged
files and wiped voters.

Some occur at random times. Others follow an event that makes them dangerous: an election, an
acknowledgement, a message of the quorum, a write to a file.

What is not promised is not done. Files of a minority of the voters are damaged, each time while all
other voters have every record: a voter that loses records which it acknowledged is a failure, and
the quorum tolerates a minority of failures.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from penstock.world.sim import DiskTrigger, Node
from penstock.world.sim.kinds import METADATA_SNAPSHOT

if TYPE_CHECKING:
    from penstock.sim.quorum.run import QuorumRun

OBSERVER = 9
# The probability that a fault follows an election, and that one follows an acknowledgement.
FAULT_AFTER_ELECTION = 0.5
FAULT_AFTER_ACKNOWLEDGEMENT = 0.05
# Fetch, Vote, BeginQuorumEpoch and FetchSnapshot.
APIS = (1, 52, 53, 59)
# Changes of a file that a crash may interrupt.
CHANGES = ("pwrite", "sync", "rename", "truncate", "sync_dir")


class QuorumFaults:
    def __init__(self, run: QuorumRun) -> None:
        self._run = run
        self._rng = run.rng
        self._network = run.network
        self._context = contextvars.copy_context()
        self.are_over = False
        # Voters whose files were damaged, at most a minority.
        self.damaged: set[int] = set()
        self._triggers: list[tuple[int, DiskTrigger]] = []

    # At random times

    def inject(self) -> None:
        """Inject one fault."""
        rng, nodes, is_dynamic = self._rng, self._run.nodes, self._run.members is not None
        node_id = rng.choice(list(nodes))
        faults: tuple[tuple[int, Callable[[int], None]], ...] = (
            (30, self._crash_or_restart),
            (10, self._partition),
            (10, self._block),
            (15, self._heal),
            (8, self._cut),
            (5, self._jump),
            (8, self._pause),
            (8, self._stop_at_a_change),
            (8, self._cut_power),
            (14, self._empty if is_dynamic else self._damage),
            (5, self._empty if is_dynamic else self._wipe),
            (6, self._slow_down),
            (5, self._limit_bandwidth),
            (10, self._crash_at_a_message),
            (8, self._crash_at_a_write),
        )
        (inject,) = rng.choices([fault for _, fault in faults], [weight for weight, _ in faults])
        inject(node_id)

    def _name(self, node_id: int) -> str:
        return self._run.nodes[node_id].name

    def _others(self, node_id: int) -> list[str]:
        return [node.name for other, node in self._run.nodes.items() if other != node_id]

    def _crash_or_restart(self, node_id: int) -> None:
        node = self._run.nodes[node_id]
        if node.alive:
            node.crash(power_loss=self._rng.random() < 0.7)
            if self._rng.random() < 0.5:
                return
        self._restart(node_id)

    def _restart(self, node_id: int) -> None:
        """Restart a node; the observer sometimes with an empty directory, since it is no voter."""
        if node_id == OBSERVER and self._rng.random() < 0.5:
            self._run.nodes[node_id].restart()
            self._run.reformat(node_id)
        self._run.restart(node_id)

    def _partition(self, node_id: int) -> None:
        others = [peer for peer in self._others(node_id) if self._rng.random() < 0.7]
        self._network.partition([self._name(node_id)], others)

    def _block(self, node_id: int) -> None:
        self._network.block(self._name(node_id), self._rng.choice(self._others(node_id)))

    def _heal(self, _node_id: int) -> None:
        self._network.heal()

    def _cut(self, node_id: int) -> None:
        self._network.cut(self._name(node_id), self._rng.choice(self._others(node_id)))

    def _jump(self, node_id: int) -> None:
        self._run.nodes[node_id].clock.jump(self._rng.randrange(-100_000, 100_000))

    def _pause(self, node_id: int) -> None:
        node = self._run.nodes[node_id]
        if node.alive:
            node.pause()
            self._later(self._rng.random() * 4, partial(_resume, node))

    def _stop_at_a_change(self, node_id: int) -> None:
        node = self._run.nodes[node_id]
        if node.alive:
            node.drive.stop_after(self._rng.randrange(60))

    def _cut_power(self, _node_id: int) -> None:
        """Cut the power of several nodes at once, often of all: all that is acknowledged is on
        disk."""
        share = self._rng.choice((0.6, 1.0))
        nodes = [node_id for node_id in self._run.nodes if self._rng.random() < share]
        for node_id in nodes:
            if self._run.nodes[node_id].alive:
                self._run.nodes[node_id].crash(power_loss=True)
        for node_id in nodes:
            self._later(self._rng.random(), partial(self._start_if_down, node_id))

    def _start_if_down(self, node_id: int) -> None:
        if not self._run.nodes[node_id].alive:
            self._run.restart(node_id)

    def _slow_down(self, node_id: int) -> None:
        """Let computing take time on a node, for a while or until the faults end."""
        node = self._run.nodes[node_id]
        node.set_speed(
            self._rng.choice((0.0, 0.001)),
            pause_s=self._rng.choice((0.1, 1.0)),
            pause_share=self._rng.choice((0.001, 0.01)),
        )
        self._later(self._rng.random() * 5, node.set_speed)

    def _limit_bandwidth(self, node_id: int) -> None:
        name, other = self._name(node_id), self._rng.choice(self._others(node_id))
        limit = self._rng.choice((2_000, 20_000))
        self._network.set_bandwidth(name, other, limit)
        self._network.set_bandwidth(other, name, limit)

    # Damaged files

    def _may_lose(self, node_id: int) -> bool:
        """Return True if the quorum tolerates that this node loses its files now."""
        run = self._run
        if node_id == OBSERVER:
            return True
        is_minority = len({*self.damaged, node_id}) * 2 < len(run.voters)
        others = [run.quorums.get(voter) for voter in run.voters if voter != node_id]
        ends = {None if other is None else other.log_end_offset for other in others}
        return (
            is_minority
            and all(other is not None and other.is_synced for other in others)
            and len(ends) == 1
            and run.history.highest_offset + 1 in ends
        )

    def _damage(self, node_id: int) -> None:
        """Flip a bit in a file of a node, or cut the file. The node runs on with a damaged
        snapshot; for all other files it is down meanwhile."""
        if not self._may_lose(node_id):
            return
        drive = self._run.nodes[node_id].drive
        is_running = self._rng.random() < 0.4
        files = {
            path: size
            for path, size in drive.files(METADATA_SNAPSHOT if is_running else None).items()
            if size
        }
        if not files:
            return
        self._note_damaged(node_id)
        if not is_running and self._run.nodes[node_id].alive:
            self._run.nodes[node_id].crash(power_loss=self._rng.random() < 0.5)
            files = {path: size for path, size in drive.files().items() if path in files and size}
        path = self._rng.choice(sorted(files) or [""])
        if path and self._rng.random() < 0.8:
            drive.flip_bit(path, self._rng.randrange(files[path]), self._rng.randrange(8))
        elif path:
            drive.cut(path, self._rng.randrange(files[path]))
        if not is_running:
            self._run.restart(node_id)

    def _wipe(self, node_id: int) -> None:
        """Empty a voter's directory. It must not start before it is formatted (rule 19)."""
        if node_id not in (OBSERVER, *self._run.wiped) and self._may_lose(node_id):
            self._note_damaged(node_id)
            self.forget_triggers(node_id)
            disk = self._run.nodes[node_id].restart().disk
            disk.remove_tree("/d")
            disk.sync_dir("/")
            self._run.wiped.add(node_id)
            self._run.start(node_id)

    def _empty(self, node_id: int) -> None:
        """Empty a controller's directory, which makes it another one (rule 19), and format it to
        join."""
        members = self._run.members
        if node_id != OBSERVER and members is not None and members.may_lose(node_id):
            self._run.nodes[node_id].restart()
            self._run.reformat(node_id)
            self._run.start(node_id)

    def damage_latest_snapshot(self, node_id: int) -> None:
        """Flip a bit in the latest snapshot of a running node, if it has one."""
        drive = self._run.nodes[node_id].drive
        files = [item for item in drive.files(METADATA_SNAPSHOT).items() if item[1]]
        if files:
            self._note_damaged(node_id)
            path, size = files[-1]
            drive.flip_bit(path, self._rng.randrange(size), self._rng.randrange(8))

    def _note_damaged(self, node_id: int) -> None:
        if node_id != OBSERVER:
            self.damaged.add(node_id)
        self._run.may_refuse.add(node_id)

    # After events

    def _crash_at_a_message(self, node_id: int) -> None:
        """Power-cycle a node at one of the next messages of a kind that it receives."""
        self._network.on_frame(
            lambda _frame: self._later(0.0, partial(self._power_cycle, node_id)),
            api_key=self._rng.choice(APIS),
            response=self._rng.random() < 0.5,
            target=self._name(node_id),
            nth=self._rng.choice((1, 2, 5)),
            after_bytes=self._rng.choice((None, 20, -1)),
        )

    def _crash_at_a_write(self, node_id: int) -> None:
        """Cut a node's power before one of the next changes of its files."""
        node = self._run.nodes[node_id]
        if node.alive:
            trigger = node.drive.on_operation(
                lambda: self._later(0.0, partial(self._power_cycle, node_id)),
                [self._rng.choice(CHANGES)],
                nth=self._rng.choice((1, 2, 10)),
                instead=True,
            )
            self._triggers.append((node_id, trigger))

    def forget_triggers(self, node_id: int) -> None:
        """End what waits for changes of the node's files: the run itself will change them."""
        for other, trigger in self._triggers:
            if other == node_id:
                self._run.nodes[node_id].drive.forget(trigger)

    def after_election(self, leader: int) -> None:
        if self._rng.random() < FAULT_AFTER_ELECTION:
            within_s = self._rng.choice((0.0, 0.01, 0.03))
            self._inject_soon(within_s, partial(self._isolate_new_leader, leader))

    def after_acknowledgement(self, leader: int) -> None:
        if self._rng.random() < FAULT_AFTER_ACKNOWLEDGEMENT:
            self._inject_soon(0.0, partial(self._lose_power_and_isolate, leader))

    def _inject_soon(self, within_s: float, inject: Callable[[], None]) -> None:
        def inject_and_heal_later() -> None:
            inject()
            self._later(self._rng.random() * 3, self._network.heal)

        self._later(self._rng.random() * within_s, inject_and_heal_later)

    def _isolate_new_leader(self, leader: int) -> None:
        """Isolate the leader and power-cycle voters, which then get another vote request."""
        self._isolate(leader)
        for node_id in self._run.voters:
            if node_id != leader and self._rng.random() < 0.5:
                self._power_cycle(node_id)

    def _lose_power_and_isolate(self, leader: int) -> None:
        """Power-cycle the followers, or the leader and some of them, and isolate another voter.

        The acknowledged write must be on the disks of a majority.
        """
        voters = self._run.voters
        if self._rng.random() < 0.5:
            cycled = [node_id for node_id in voters if node_id != leader]
        else:
            cycled = [
                node_id for node_id in voters if node_id == leader or self._rng.random() < 0.3
            ]
        for node_id in cycled:
            self._power_cycle(node_id)
        left = [node_id for node_id in voters if node_id not in cycled]
        if left:
            self._isolate(self._rng.choice(left))

    def _isolate(self, node_id: int) -> None:
        self._network.partition([self._name(node_id)], self._others(node_id))

    def _power_cycle(self, node_id: int) -> None:
        if self._run.nodes[node_id].alive:
            self._run.nodes[node_id].crash(power_loss=True)
        self._run.restart(node_id)

    # The end

    def _later(self, seconds: float, inject: Callable[[], None]) -> None:
        """Call back in the run's own context, unless the faults are over by then."""
        asyncio.get_running_loop().call_later(
            seconds, self._unless_over, inject, context=self._context
        )

    def _unless_over(self, inject: Callable[[], None]) -> None:
        if not self.are_over:
            inject()

    def end(self) -> None:
        """Heal the network, and start or resume all nodes that can start."""
        self.are_over = True
        self._network.heal()
        nodes = self._run.nodes
        for node_id in nodes:
            self.forget_triggers(node_id)
        for source in nodes.values():
            for target in _except(nodes.values(), source):
                self._network.set_bandwidth(source.name, target.name, None)
        for node_id, node in nodes.items():
            self._run.disk_delays[node_id] = 0.0
            node.set_speed()
            # A slow disk tells the process later that the drive has stopped. Then it ends.
            has_stopped = node.drive.has_stopped
            node.drive.stop_after(None)
            is_running = node.alive and node_id in self._run.quorums
            if is_running and self._rng.random() < 0.5 and not has_stopped:
                node.resume()
            else:
                self._restart(node_id)


def _resume(node: Node) -> None:
    if node.alive:
        node.resume()


def _except(nodes: Iterable[Node], excluded: Node) -> list[Node]:
    return [node for node in nodes if node is not excluded]
