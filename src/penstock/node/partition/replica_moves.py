"""Which replica may move to which log directory of this node, by Kafka's rules. How it moves is the
log store's affair."""

from __future__ import annotations

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, TopicPartition
from penstock.limits import MAX_FILE_NAME_BYTES
from penstock.log.directory import LogDirectory
from penstock.log.names import future_dir
from penstock.log.store import LogStore
from penstock.node.metadata import MetadataView
from penstock.node.supervisor import Spawn


class ReplicaMoves:
    """The moves that clients ask for. Each is a task of the node's own, and nobody waits for it."""

    def __init__(self, store: LogStore, metadata: MetadataView, spawn: Spawn) -> None:
        self._store = store
        self._metadata = metadata
        self._spawn = spawn

    def move(self, partition: TopicPartition, path: str) -> None:
        """Begins a move, unless the replica is there already. In the order of Kafka's own checks
        (ReplicaManager.alterReplicaLogDirs)."""
        if len(future_dir(partition, NO_UUID)) > MAX_FILE_NAME_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the name of {partition.topic} is too long for a replica that moves",
            )
        directory = self._directory(path)
        store = self._store
        if partition in store.damaged:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is damaged: {store.damaged[partition]}"
            )
        if partition not in store.logs:
            raise self._absent(partition, directory)
        if (failed := store.logs[partition].directory).failure is not None:
            raise failed.offline()
        move = store.moves.begin(partition, directory)
        if move is not None:
            self._spawn(store.moves.run(move))

    def _directory(self, path: str) -> LogDirectory:
        directory = next((one for one in self._store.directories if one.path == path), None)
        if directory is None:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                (
                    f"{path} is not one of this broker's log directories, as DescribeLogDirs tells "
                    "them"
                ),
            )
        if directory.failure is not None:
            raise directory.offline()
        return directory

    def _absent(self, partition: TopicPartition, directory: LogDirectory) -> KafkaError:
        """A replica that may come to this broker later comes to this directory then:
        kafka-reassign-partitions counts on it."""
        topic = self._metadata.image.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        self._store.preferred[partition] = directory
        return KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker has no replica of {partition} yet"
        )
