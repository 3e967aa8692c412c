"""What another log directory holds of a replica than the one it lies in: a creation that failed
half way leaves something behind on the disk that failed, and the replica is then made elsewhere.
Once that disk is mended the log store would find two, and could serve neither, since it cannot tell
which is the replica. The controller can (KIP-858).
"""

from __future__ import annotations

import logging
from uuid import UUID

from penstock.ids import NO_UUID, TopicPartition
from penstock.log import names
from penstock.log.directory import unless_offline
from penstock.log.store import LogStore
from penstock.metadata.image import MetadataImage
from penstock.world import Disk

logger = logging.getLogger(__name__)


def set_leftovers_aside(store: LogStore, disk: Disk, image: MetadataImage, node_id: int) -> None:
    """To be done before the logs are opened. Where the controller does not know either, both stay
    as they are."""
    if len(store.online) < 2:
        return
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            known = dict(zip(state.replicas, state.directories, strict=False)).get(node_id, NO_UUID)
            _settle(store, disk, TopicPartition(topic.name, index), known)


def _settle(store: LogStore, disk: Disk, partition: TopicPartition, known: UUID) -> None:
    holding = [
        directory for directory in store.online if disk.is_dir(f"{directory.path}/{partition}")
    ]
    if all(directory.id != known for directory in holding):
        return
    if any(disk.exists(f"{directory.path}/{partition}/{names.MOVED}") for directory in holding):
        # it has moved, and the controller may not have heard of it yet: the store knows what to do
        return
    for directory in holding:
        if directory.id != known:
            logger.warning(
                "%s/%s is removed: the replica lies in another directory, as the controller knows",
                directory.path,
                partition,
            )
            with unless_offline(directory):
                store.set_aside(partition, directory, 0)
