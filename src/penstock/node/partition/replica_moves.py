"""AlterReplicaLogDirs: which replica may move to which log directory of this node, by Kafka's
rules. The log store moves it."""

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
    """Starts the moves that clients request. Each is a task that the node owns."""

    def __init__(self, store: LogStore, metadata: MetadataView, spawn: Spawn) -> None:
        self._store = store
        self._metadata = metadata
        self._spawn = spawn

    def move(self, partition: TopicPartition, path: str) -> None:
        """Start a move unless the replica is in that directory already. Checks in the same order as
        Kafka's ReplicaManager.alterReplicaLogDirs."""
        if len(future_dir(partition, NO_UUID)) > MAX_FILE_NAME_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the name of {partition.topic} is too long for the directory of a moving replica",
            )
        directory = self._directory(path)
        store = self._store
        if partition in store.damaged:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is damaged: {store.damaged[partition]}"
            )
        if partition not in store.logs:
            raise self._absent(partition, directory)
        current = store.logs[partition].directory
        if current.failure is not None:
            raise current.offline()
        move = store.moves.begin(partition, directory)
        if move is not None:
            self._spawn(store.moves.run(move))

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._store.directories:
            if directory.path == path:
                if directory.failure is not None:
                    raise directory.offline()
                if directory.cordoned:
                    raise KafkaError(
                        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                        f"{path} is cordoned: remove it from cordoned.log.dirs first",
                    )
                return directory
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"{path} is not a log directory of this broker; DescribeLogDirs lists them",
        )

    def _absent(self, partition: TopicPartition, directory: LogDirectory) -> KafkaError:
        """Remember the directory for a replica that is assigned to this broker later, as
        kafka-reassign-partitions expects. Return the error for the client."""
        topic = self._metadata.image.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        self._store.preferred[partition] = directory
        return KafkaError(
            ErrorCode.REPLICA_NOT_AVAILABLE, f"this broker has no replica of {partition} yet"
        )
