"""Which nodes a fault may hit, and how hard.

Faults never exceed what the cluster promises to survive. Unless every record is synced before it is
acknowledged, at most one node loses unsynced data until the cluster is healthy again, and no other
node dies uncleanly in that time. A broker that restarts after an unclean shutdown leaves ISR and
ELR, as in Kafka; if its last peer lost its log at the same time, the controller could not know
whose log is complete.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from penstock.sim.cluster.health import find_problem
from penstock.sim.cluster.history import History
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observers.partitions import PartitionObserver
from penstock.sim.cluster.spec import ClusterSpec

POLL_S = 0.1


class FaultTargets:
    def __init__(
        self,
        spec: ClusterSpec,
        nodes: Mapping[str, ClusterNode],
        history: History,
        observer: PartitionObserver,
        rng: random.Random,
    ) -> None:
        self._spec = spec
        self._nodes = nodes
        self._history = history
        self._observer = observer
        self._rng = rng
        # Nodes that died uncleanly, and nodes that lost data, since the cluster was last healthy.
        # Dicts, because their order is deterministic.
        self._unclean: dict[str, None] = {}
        self._lossy: dict[str, None] = {}
        # Nodes whose disk stops at some change: they are about to be killed.
        self._dying: dict[str, None] = {}
        # Nodes that have lost what they had synced, since the cluster was last healthy.
        self._damaged: dict[str, None] = {}

    def pick(self) -> ClusterNode:
        """Return a random node. Partition leaders and the active controller are more likely."""
        processes = [
            self._observer.processes[node.config.node_id]
            for node in self._nodes.values()
            if node.config.node_id in self._observer.processes
        ]
        draw = self._rng.random()
        candidates = processes
        if draw < 0.5:
            candidates = [
                process
                for process in processes
                if any(partition.is_leader for partition in process.replicas.partitions.values())
            ]
        elif draw < 0.75:
            candidates = [process for process in processes if process.quorum.is_leader]
        if not candidates:
            return self._rng.choice(list(self._nodes.values()))
        return self._nodes[self._spec.name_of(self._rng.choice(candidates).config.node_id)]

    def leads(self, node: ClusterNode) -> bool:
        """Whether a node leads a partition of the workload's topics."""
        process = self._observer.processes.get(node.config.node_id)
        written = [name for topic in self._spec.topics for name in topic.all_partitions]
        return process is not None and any(
            name in process.replicas.partitions and process.replicas.partitions[name].is_leader
            for name in written
        )

    def is_healthy(self) -> bool:
        return find_problem(self._nodes.values(), self._observer) is None

    async def reset_when_healthy(self) -> None:
        """Forget past crashes whenever the cluster is healthy. Runs until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            if self._unclean and not self._dying and self.is_healthy():
                self._unclean.clear()
                self._lossy.clear()
                self._damaged.clear()

    def may_die(self, node: ClusterNode) -> bool:
        if any(name != node.name for name in self._damaged):
            return False
        return self._spec.flush_every_message or all(name == node.name for name in self._lossy)

    def may_lose_data(self, node: ClusterNode) -> bool:
        return self._spec.flush_every_message or all(name == node.name for name in self._unclean)

    def may_be_damaged(self, node: ClusterNode) -> bool:
        """Whether a node may lose what it has synced: only while no other node has died uncleanly,
        because that node has left the ISR, and this one may be the only one in it."""
        return not self._dying and all(name == node.name for name in self._unclean)

    def mark_damaged(self, node: ClusterNode) -> None:
        """The node may lose what it has synced, and may be the only one that has it."""
        self._damaged[node.name] = None
        self.mark_data_lost(node)
        self._expect_loss_of_single_copies()

    def kill(self, node: ClusterNode, *, may_lose_power: bool = True) -> None:
        """Crash a node if that is allowed now, with a loss of power half of the time."""
        if not node.machine.alive or not self.may_die(node):
            return
        loses_power = (
            (self._spec.flush_every_message or may_lose_power)
            and self.may_lose_data(node)
            and self._rng.random() < 0.5
        )
        self.mark_unclean(node)
        if loses_power:
            self.mark_data_lost(node)
        node.crash(power_loss=loses_power)

    def restart(self, node: ClusterNode) -> None:
        """Restart a node unless it is up."""
        if not node.is_up:
            node.restart()

    def mark_unclean(self, node: ClusterNode) -> None:
        self._unclean[node.name] = None

    def mark_dying(self, node: ClusterNode) -> None:
        self._unclean[node.name] = self._dying[node.name] = None

    def unmark_dying(self, node: ClusterNode) -> None:
        self._dying.pop(node.name, None)

    def mark_data_lost(self, node: ClusterNode) -> None:
        self._unclean[node.name] = self._lossy[node.name] = None
        self._observer.mark_data_lost(node.config.node_id)
        if not self._spec.flush_every_message:
            self._expect_loss_of_single_copies()

    def _expect_loss_of_single_copies(self) -> None:
        durable = self._history.durable_topics
        for topic in self._spec.topics:
            durable[topic.name] = durable[topic.name] and topic.min_insync > 1
