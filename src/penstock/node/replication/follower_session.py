"""A follower's side of a fetch session (KIP-227): the partitions followed from one leader, and
those that the next request must list.

Knows no connection. A broker may follow 100,000 partitions of one leader, so a request lists a
bounded number of partitions, and the next one lists more. Without a session at the leader, requests
list all partitions in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from penstock.ids import UNKNOWN_OFFSET
from penstock.limits import MAX_PARTITIONS_PER_FETCH
from penstock.node.partition.partition import Partition
from penstock.protocol.messages.fetch import FetchRequest

Key = tuple[UUID, int]
Topic = FetchRequest.Topic

_LAST_SESSION_EPOCH = 2**31 - 1


class FollowedPartition:
    """A partition in one leader epoch. `first_request` is the number of the first request that
    listed it; responses to earlier requests are not for it. `sent_log_start` is the log start in
    the last request that listed it. `unsynced_bytes` counts what was appended since the follower
    last waited for a sync."""

    __slots__ = (
        "epoch",
        "failures",
        "first_request",
        "key",
        "partition",
        "sent_log_start",
        "unsynced_bytes",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = key_of(partition)
        self.epoch = partition.leader_epoch
        self.first_request = 0
        self.failures = 0
        self.sent_log_start = UNKNOWN_OFFSET
        self.unsynced_bytes = 0

    def request(self, max_bytes: int) -> Topic.Partition:
        partition = self.partition
        self.sent_log_start = partition.log_start_offset
        return Topic.Partition(
            partition=self.key[1],
            current_leader_epoch=self.epoch,
            fetch_offset=partition.log_end_offset,
            last_fetched_epoch=partition.last_epoch,
            log_start_offset=self.sent_log_start,
            partition_max_bytes=max_bytes,
        )


def key_of(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition


def _take(keys: Iterable[Key]) -> list[Key]:
    """Return the keys of the next request, those that wait the longest."""
    return list(islice(keys, MAX_PARTITIONS_PER_FETCH))


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
        self._last_listed: list[FollowedPartition] = []

    @property
    def has_changes(self) -> bool:
        """True if a request should be sent without waiting for the response in flight."""
        return bool(self._changed or self._forgotten)

    def begin(self, broker_epoch: int) -> None:
        """Start again on a new connection: the first requests list all partitions."""
        self.id = self._epoch = self._requests = self._responses = 0
        self.broker_epoch = broker_epoch
        self._forgotten.clear()
        for followed in self.followed.values():
            if followed.first_request:
                followed.first_request = 0
                self.change(followed)

    def received(self, session_id: int) -> None:
        """Note a response; responses come in the order of the requests. With the session id 0 the
        leader has no session for this broker, and every partition must be listed again."""
        self._responses += 1
        if session_id == 0:
            # Without a session, all partitions but those of the last request are to be listed.
            for followed in list(self.followed.values()) if self.id else self._last_listed:
                if followed.first_request and self.followed.get(followed.key) is followed:
                    self.change(followed)
        if session_id != self.id:
            self.id, self._epoch = session_id, 1 if session_id else 0

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
        self._last_listed = [self._changed.pop(key) for key in _take(self._changed)]
        for followed in self._last_listed:
            followed.first_request = followed.first_request or self._requests
            topic = listed.setdefault(followed.key[0], [])
            topic.append(followed.request(self._partition_max_bytes))
        forgotten: dict[UUID, list[int]] = {}
        for key in _take(self._forgotten):
            del self._forgotten[key]
            forgotten.setdefault(key[0], []).append(key[1])
        max_wait_ms, min_bytes, max_bytes = self._bounds
        if not self.id:
            # Partitions that this request does not list must not wait long for the next one.
            max_wait_ms //= 1 + len(self.followed) // MAX_PARTITIONS_PER_FETCH
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
