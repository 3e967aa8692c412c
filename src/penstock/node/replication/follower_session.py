"""A follower's side of a fetch session (KIP-227): which partitions are followed from one leader,
and which the next request must name.

Knows no connection. Without a session at the leader every request names everything.
"""

from __future__ import annotations

from uuid import UUID

from penstock.node.partition.partition import Partition
from penstock.protocol.messages.fetch import FetchRequest

Key = tuple[UUID, int]
Topic = FetchRequest.Topic

_LAST_EPOCH = 2**31 - 1


class Followed:
    """One partition in one leader epoch. `first_asked` is the number of the first request that
    named it: no earlier answer is for it."""

    __slots__ = ("epoch", "failures", "first_asked", "key", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = key_of(partition)
        self.epoch = partition.leader_epoch
        self.first_asked = 0
        self.failures = 0

    def asked(self, max_bytes: int) -> Topic.Partition:
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
        self.followed: dict[Key, Followed] = {}
        self.id = 0
        self.broker_epoch = -1
        self._epoch = 0
        self._asked = 0
        self._answered = 0
        self._node_id = node_id
        self._bounds = (max_wait_ms, min_bytes, max_bytes)
        self._partition_max_bytes = partition_max_bytes
        self._changed: dict[Key, Followed] = {}
        self._forgotten: dict[Key, None] = {}

    @property
    def has_news(self) -> bool:
        """Whether the leader should hear something before it is asked the next time anyway."""
        return bool(self._changed or self._forgotten)

    def begin(self, broker_epoch: int) -> None:
        """With a new connection: the leader is to be told everything."""
        self.id = self._epoch = self._asked = self._answered = 0
        self.broker_epoch = broker_epoch
        self._forgotten.clear()
        for followed in self.followed.values():
            if followed.first_asked:
                followed.first_asked = 0
                self.change(followed)

    def answered(self, session_id: int) -> None:
        """The leader answered, in the order of the requests. 0: it has no room for a session, and
        is to be told everything each time."""
        self._answered += 1
        if session_id != self.id:
            self.id, self._epoch = session_id, 1
        if session_id == 0:
            for followed in self.followed.values():
                if followed.first_asked:
                    self.change(followed)

    def expects(self, followed: Followed) -> bool:
        """Whether the last answer is to a request that named this partition in this leader
        epoch."""
        return 0 < followed.first_asked <= self._answered

    def change(self, followed: Followed) -> None:
        """The next request names it."""
        self._forgotten.pop(followed.key, None)
        self._changed[followed.key] = followed

    def forget(self, key: Key) -> None:
        """The next request lets go of it."""
        self._changed.pop(key, None)
        self._forgotten[key] = None
        if key in self.followed:
            self.followed[key].first_asked = 0

    def request(self) -> FetchRequest:
        self._asked += 1
        named: dict[UUID, list[Topic.Partition]] = {}
        for key, followed in self._changed.items():
            followed.first_asked = followed.first_asked or self._asked
            named.setdefault(key[0], []).append(followed.asked(self._partition_max_bytes))
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
                    Topic(topic_id=topic_id, partitions=tuple(asked))
                    for topic_id, asked in named.items()
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
            self._epoch = self._epoch % _LAST_EPOCH + 1
        return request
