"""A follower's side of a fetch session (KIP-227): the partitions followed from one leader, and
those that the next request must list.

Knows no connection. Without a session at the leader, every request lists all partitions.
"""

from __future__ import annotations

from uuid import UUID

from penstock.node.partition.partition import Partition
from penstock.protocol.messages.fetch import FetchRequest

Key = tuple[UUID, int]
Topic = FetchRequest.Topic

_LAST_SESSION_EPOCH = 2**31 - 1


class FollowedPartition:
    """A partition in one leader epoch. `first_request` is the number of the first request that
    listed it; responses to earlier requests are not for it."""

    __slots__ = ("epoch", "failures", "first_request", "key", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = key_of(partition)
        self.epoch = partition.leader_epoch
        self.first_request = 0
        self.failures = 0

    def request(self, max_bytes: int) -> Topic.Partition:
        partition = self.partition
        return Topic.Partition(
            partition=self.key[1],
            current_leader_epoch=self.epoch,
            fetch_offset=partition.log_end_offset,
            last_fetched_epoch=partition.last_epoch,
            log_start_offset=partition.log_start_offset,
            partition_max_bytes=max_bytes,
        )


def key_of(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition


class FollowerSession:
    def __init__(
        self,
        node_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
    ) -> None:
        self.followed: dict[Key, FollowedPartition] = {}
        self.id = 0
        self.broker_epoch = -1
        self._epoch = 0
        self._requests = 0
        self._responses = 0
        self._node_id = node_id
        self._bounds = (max_wait_ms, min_bytes, max_bytes)
        self._partition_max_bytes = partition_max_bytes
        self._changed: dict[Key, FollowedPartition] = {}
        self._forgotten: dict[Key, None] = {}

    @property
    def has_changes(self) -> bool:
        """True if a request should be sent without waiting for the response in flight."""
        return bool(self._changed or self._forgotten)

    def begin(self, broker_epoch: int) -> None:
        """Start again on a new connection: the first request lists all partitions."""
        self.id = self._epoch = self._requests = self._responses = 0
        self.broker_epoch = broker_epoch
        self._forgotten.clear()
        for followed in self.followed.values():
            if followed.first_request:
                followed.first_request = 0
                self.change(followed)

    def received(self, session_id: int) -> None:
        """Note a response; responses come in the order of the requests. With the session id 0 the
        leader has no room for a session, and every request lists all partitions."""
        self._responses += 1
        if session_id != self.id:
            self.id, self._epoch = session_id, 1
        if session_id == 0:
            for followed in self.followed.values():
                if followed.first_request:
                    self.change(followed)

    def expects(self, followed: FollowedPartition) -> bool:
        """Return True if the last response is to a request that listed this partition in this
        leader epoch."""
        return 0 < followed.first_request <= self._responses

    def change(self, followed: FollowedPartition) -> None:
        """List the partition in the next request."""
        self._forgotten.pop(followed.key, None)
        self._changed[followed.key] = followed

    def forget(self, key: Key) -> None:
        """Remove the partition from the session with the next request."""
        self._changed.pop(key, None)
        self._forgotten[key] = None
        if key in self.followed:
            self.followed[key].first_request = 0

    def request(self) -> FetchRequest:
        self._requests += 1
        listed: dict[UUID, list[Topic.Partition]] = {}
        for key, followed in self._changed.items():
            followed.first_request = followed.first_request or self._requests
            listed.setdefault(key[0], []).append(followed.request(self._partition_max_bytes))
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        self._changed.clear()
        self._forgotten.clear()
        max_wait_ms, min_bytes, max_bytes = self._bounds
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._node_id, replica_epoch=self.broker_epoch
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.id,
            session_epoch=self._epoch,
            topics=tuple(
                [
                    Topic(topic_id=topic_id, partitions=tuple(partitions))
                    for topic_id, partitions in listed.items()
                ]
            ),
            forgotten_topics_data=tuple(
                [
                    FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                    for topic_id, indexes in forgotten.items()
                ]
            ),
        )
        if self.id:
            self._epoch = self._epoch % _LAST_SESSION_EPOCH + 1
        return request
