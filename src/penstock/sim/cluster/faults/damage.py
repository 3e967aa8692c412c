"""Damages files of one node (rule 20): flips a bit, or cuts off the end of a file.

Not every flipped bit can be detected, because Kafka's formats do not have a checksum everywhere
(ARCHITECTURE.md, "Bit rot"). These are not flipped: the base offset and the leader epoch of a
batch, and digits of quorum-state and of the checkpoint files, which would become other digits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial

from penstock.ids import TopicPartition
from penstock.log import names as log_names
from penstock.records.batch import CorruptBatch, batches
from penstock.sim.cluster.events import FileDamaged, FileRepaired
from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.nodes import CLUSTER_ID, ClusterNode
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.kinds import METADATA_SNAPSHOT, SEGMENT, file_kind
from penstock.world.sim.names import find_file, split

METADATA_DIR = "__cluster_metadata-0"
_DIGITS = b"0123456789"


class DamageFaults:
    def __init__(self, env: FaultEnv) -> None:
        self._env = env
        self._rng = env.rng
        self.damaged: dict[str, str] = {}

    async def damage_file(self) -> None:
        """Damage a file of a node that runs or is down, let the node try to live with it, then
        repair it as an operator would."""
        env, rng = self._env, self._rng
        node = env.targets.pick()
        if not node.machine.alive or self.damaged or not env.targets.may_be_damaged(node):
            return
        env.targets.mark_damaged(node)
        while_down = rng.random() < 0.6
        if while_down:
            env.targets.kill(node, may_lose_power=False)
        path = self._damage(node)
        if path is None:
            env.targets.restart(node)
            return
        await asyncio.sleep(rng.random() * 0.5)
        env.targets.restart(node)
        await asyncio.sleep(1.0 + 2 * rng.random())
        await self.repair()

    def _damage(self, node: ClusterNode) -> str | None:
        """Damage a file of a random kind, and return its path."""
        drive = node.machine.drive
        by_kind: dict[str, list[str]] = {}
        for path, size in drive.files().items():
            if size:
                by_kind.setdefault(kind_of(path), []).append(path)
        if not by_kind:
            return None
        # Segments have the data, and most of the bytes.
        kinds = [*sorted(by_kind), *[SEGMENT] * (3 if SEGMENT in by_kind else 0)]
        kind = self._rng.choice(kinds)
        path = self._rng.choice(sorted(by_kind[kind]))
        if self._rng.random() < 0.3:
            drive.cut(path, self._rng.randrange(drive.files()[path]))
            self._note(node, path, "is cut")
        else:
            self.flip(node, path)
        return path

    def flip(self, node: ClusterNode, path: str) -> None:
        """Flip a bit of a file."""
        drive = node.machine.drive
        position, bit = self._bit(drive, path)
        drive.flip_bit(path, position, bit)
        self._note(node, path, f"has bit {bit} of byte {position} flipped")

    def _note(self, node: ClusterNode, path: str, damage: str) -> None:
        env = self._env
        self.damaged[node.name] = path
        env.note(f"{path} of {node.name} {damage}")
        env.history.count(f"damaged {kind_of(path)}")
        env.history.events.append(
            FileDamaged(env.now(), node.config.node_id, path, partition_of(path))
        )

    def _bit(self, drive: SimDrive, path: str) -> tuple[int, int]:
        """Return a byte and a bit of it, of those whose flip can be detected."""
        content = bytes(find_file(drive.names.root, split(path)).content)
        unprotected = set(_unprotected(path, content))
        while True:
            position, bit = self._rng.randrange(len(content)), self._rng.randrange(8)
            flipped = content[position] ^ (1 << bit)
            if position in unprotected:
                continue
            if _is_text(path) and content[position] in _DIGITS and flipped in _DIGITS:
                continue
            return position, bit

    async def repair(self) -> None:
        """Remove what is damaged, as an operator does: a partition's directory, or all files of the
        node if others are damaged. The node then replicates from its peers."""
        env = self._env
        for name, path in list(self.damaged.items()):
            node = env.nodes[name]
            if file_kind(path) == METADATA_SNAPSHOT and node.is_up:
                # The node sets it aside when it reads it, and writes others.
                del self.damaged[name]
                env.history.events.append(FileRepaired(env.now(), node.config.node_id))
                continue
            # The damage may have stayed unnoticed, and other nodes may have died since.
            await env.wait_for(30.0, partial(env.targets.may_be_damaged, node))
            env.targets.mark_damaged(node)
            if node.machine.alive:
                node.crash(power_loss=False)
            del self.damaged[name]
            if partition_of(path) is not None and METADATA_DIR not in path:
                remove_directory(node, path.rsplit("/", 1)[0])
            else:
                await self.wait_safe_to_wipe(node)
                wipe(node)
            env.history.events.append(FileRepaired(env.now(), node.config.node_id))
            node.restart()

    async def wait_safe_to_wipe(self, node: ClusterNode) -> None:
        """Wait until the other voters have all committed metadata. Otherwise an emptied voter and
        one that is behind would be a majority without it."""
        env = self._env
        others = [
            other
            for other in env.nodes.values()
            if other is not node and other.config.is_controller
        ]

        def caught_up() -> bool:
            processes = [env.process_of(other) for other in others]
            if any(not other.is_up or other.is_paused for other in others) or None in processes:
                return False
            ends = {process.quorum.log_end_offset for process in processes if process is not None}
            return env.quorum_leader is not None and len(ends) == 1

        await env.wait_for(30.0, caught_up)


def kind_of(path: str) -> str:
    """Return the kind of a file, and for segments and indexes of the metadata that they are."""
    kind = file_kind(path)
    return f"metadata {kind}" if METADATA_DIR in path and kind != METADATA_SNAPSHOT else kind


def partition_of(path: str) -> TopicPartition | None:
    """Return the partition whose directory a file is in; None for metadata and for files of a
    whole log directory."""
    parent = path.rsplit("/", 2)[-2]
    partition = log_names.parse_partition_dir(parent)
    return None if partition is None or parent == METADATA_DIR else partition


def wipe(node: ClusterNode) -> None:
    """Replace the disks of a node that is down: empty its directories and format them."""
    disk = node.machine.restart().disk
    for directory in dict.fromkeys(node.config.directories):
        if disk.exists(directory):
            disk.remove_tree(directory)
    node.format(CLUSTER_ID)


def remove_directory(node: ClusterNode, path: str) -> None:
    """Remove a directory of a node that is down."""
    disk = node.machine.restart().disk
    if disk.exists(path):
        disk.remove_tree(path)
        disk.sync_dir(path.rsplit("/", 1)[0])


def _is_text(path: str) -> bool:
    name = path.rsplit("/", 1)[1]
    return name.endswith("checkpoint") or name == "quorum-state"


def _unprotected(path: str, content: bytes) -> Iterator[int]:
    """Yield the positions of the base offset and the leader epoch of every batch. The last one may
    be torn after a loss of power."""
    if path.endswith((".log", ".checkpoint")) and "-checkpoint" not in path:
        with contextlib.suppress(CorruptBatch):
            for position, _header in batches(content):
                yield from range(position, position + 8)
                yield from range(position + 12, position + 16)
