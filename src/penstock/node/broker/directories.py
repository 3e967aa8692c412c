"""Tells the controller in which directory each replica of this broker lies, where it does not know
yet (KIP-858)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import PartitionState
from penstock.node.partition.partition import Partition
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from penstock.node.node import Node

logger = logging.getLogger(__name__)

Directory = AssignReplicasToDirsRequest.Directory
_TIMEOUT_S = 10.0
_AGAIN_S = 0.5


class DirectoryReports:
    """One request at a time; what is found meanwhile goes with the next."""

    def __init__(self, node: Node) -> None:
        self._node = node
        # (topic id, partition) -> directory.
        self._due: dict[tuple[UUID, int], UUID] = {}
        self._sending = False

    def check(self, partition: Partition, topic_id: UUID, state: PartitionState) -> None:
        known = dict(zip(state.replicas, state.directories, strict=False)).get(self._node.node_id)
        if known == partition.directory.id:
            return
        self._due[topic_id, partition.topic_partition.partition] = partition.directory.id
        if not self._sending:
            self._sending = True
            self._node.spawn(self._send())

    async def _send(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                try:
                    answer = await self._node.channel.call(
                        self._request(due), AssignReplicasToDirsResponse, timeout_s=_TIMEOUT_S
                    )
                    code = ErrorCode(answer.error_code)
                except KafkaError as error:
                    code = error.code
                if code is not ErrorCode.NONE:
                    logger.warning(
                        "the controller does not take the directories of %d replicas: %s",
                        len(due),
                        code.name,
                    )
                    self._due = due | self._due
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._sending = False

    def _request(self, due: dict[tuple[UUID, int], UUID]) -> AssignReplicasToDirsRequest:
        by_directory: dict[UUID, dict[UUID, list[int]]] = {}
        for (topic_id, index), directory in due.items():
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node.node_id,
            broker_epoch=self._node.broker_epoch,
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
