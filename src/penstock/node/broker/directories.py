"""The log directories of this broker's replicas, as the controller knows them (KIP-858)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.limits import MAX_ASSIGNMENTS_PER_REQUEST
from penstock.log import names
from penstock.log.directory import LogDirectory, unless_offline
from penstock.log.store import LogStore
from penstock.metadata.image import MetadataImage, PartitionState
from penstock.node.broker.controllers import ControllerChannel
from penstock.node.partition.partition import Partition
from penstock.node.supervisor import Spawn
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from penstock.world import World

logger = logging.getLogger(__name__)

Directory = AssignReplicasToDirsRequest.Directory
# (topic id, partition) -> directory.
Reports = dict[tuple[UUID, int], UUID]
_TIMEOUT_S = 10.0
_RETRY_S = 0.5


def assigned_directory(state: PartitionState, node_id: int) -> UUID:
    """Return the directory that the metadata has for a node's replica, NO_UUID if it has none."""
    return dict(zip(state.replicas, state.directories, strict=False)).get(node_id, NO_UUID)


class DirectoryReports:
    """Reports the directory of each replica to the controller if the metadata has another one. One
    request is in flight at a time, with a bounded number of replicas; the others go with the next
    ones."""

    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._spawn = spawn
        self._due: Reports = {}
        self._sending = False

    def check(self, partition: Partition, topic_id: UUID, state: PartitionState) -> None:
        if assigned_directory(state, self._node_id) == partition.directory.id:
            return
        self._due[topic_id, partition.topic_partition.partition] = partition.directory.id
        if not self._sending:
            self._sending = True
            self._spawn(self._send())

    async def _send(self) -> None:
        try:
            while self._due:
                due = self._take()
                try:
                    response = await self._channel.call(
                        self._request(due), AssignReplicasToDirsResponse, timeout_s=_TIMEOUT_S
                    )
                    code = ErrorCode(response.error_code)
                except KafkaError as error:
                    code = error.code
                if code is not ErrorCode.NONE:
                    logger.warning(
                        "the controller refuses the directories of %d replicas: %s; trying again",
                        len(due),
                        code.name,
                    )
                    # A report that was made during the request is newer.
                    self._due = due | self._due
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._sending = False

    def _take(self) -> Reports:
        """Remove and return the reports of the next request, those that wait the longest."""
        keys = list(islice(self._due, MAX_ASSIGNMENTS_PER_REQUEST))
        return {key: self._due.pop(key) for key in keys}

    def _request(self, due: Reports) -> AssignReplicasToDirsRequest:
        by_directory: dict[UUID, dict[UUID, list[int]]] = {}
        for (topic_id, index), directory in due.items():
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=tuple(
                Directory(
                    id=directory,
                    topics=tuple(
                        Directory.Topic(
                            topic_id=topic_id,
                            partitions=tuple(
                                Directory.Topic.Partition(partition_index=index)
                                for index in indexes
                            ),
                        )
                        for topic_id, indexes in topics.items()
                    ),
                )
                for directory, topics in by_directory.items()
            ),
        )


async def remove_leftovers(
    store: LogStore, world: World, image: MetadataImage, node_id: int
) -> None:
    """Remove copies of replicas from directories that they are not assigned to.

    If the creation of a log fails half way because its disk fails, the broker creates the log in
    another directory. Once the first disk is repaired, the log store finds two copies and cannot
    tell which is the replica; the metadata can. Copies of replicas without an assigned directory
    stay. Call it before the logs are opened. It looks at partitions that are in two directories,
    and not at all partitions of the cluster.
    """
    for partition, copies in (await _duplicates(store, world)).items():
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is not None:
            _remove_copies(store, partition, copies, keep=assigned_directory(state, node_id))
            await asyncio.sleep(0)


async def _duplicates(store: LogStore, world: World) -> dict[TopicPartition, list[LogDirectory]]:
    """Return the partitions that are in several directories, and these directories."""
    if len(store.online) < 2:
        return {}
    entries: dict[LogDirectory, set[str]] = {}
    seen: set[str] = set()
    repeated: set[str] = set()
    for directory in store.online:
        try:
            # A directory may have 100,000 entries.
            found = set(await world.offload.thread(world.disk.list, directory.path))
        except OSError as error:
            directory.fail("opening", error)
            continue
        entries[directory] = found
        repeated |= seen & found
        seen |= found
    return {
        partition: [directory for directory, found in entries.items() if name in found]
        for name in sorted(repeated)
        if (partition := names.parse_partition_dir(name)) is not None
    }


def _remove_copies(
    store: LogStore, partition: TopicPartition, copies: list[LogDirectory], keep: UUID
) -> None:
    kept = next((directory for directory in copies if directory.id == keep), None)
    # If the replica moved from there, the controller may not know it yet. The store finishes the
    # move, and that of a replica that moved to where it is assigned.
    if kept is None or store.moves.replaced_by(partition, kept) is not None:
        return
    for directory in copies:
        if directory is not kept and store.moves.replaced_by(partition, directory) is not kept:
            logger.warning(
                "removing %s/%s: the replica is assigned to another log directory",
                directory.path,
                partition,
            )
            with unless_offline(directory):
                store.mark_deleted(partition, directory, 0)
