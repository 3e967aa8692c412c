"""Replication throttles: which replicas they apply to, and how fast these may be copied (KIP-73).
PURE.

The rate is that of a token bucket. It fills at the configured rate, up to one second's worth. A
copy may begin while the bucket is not empty, and takes its bytes out of it afterwards, so that the
bucket may owe bytes: copies have the sizes of batches and responses, not of the bucket. The debt is
limited to what Kafka's window of 11 seconds would remember, so that one large batch does not stop a
slow copy for hours.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from penstock.config.topic import LogConfig
from penstock.ids import TopicPartition

# The value of a rate that is not set: Kafka's default.
UNLIMITED = 2**63 - 1

_BURST_S = 1.0
_MAX_DEBT_S = 11.0
_EMPTY_RATE_WAIT_S = 1.0

# All replicas of a topic.
_ALL = "*"


class ReplicationQuota:
    """A rate in bytes per second. `is_set` is False if there is none. `copied` are all bytes that
    counted towards it."""

    __slots__ = ("_at", "_rate", "_tokens", "copied", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.copied = 0
        self._rate = UNLIMITED
        self._tokens = 0.0
        self._at = 0.0

    @property
    def rate(self) -> int:
        return self._rate

    def set_rate(self, rate: int, now: float) -> None:
        """Change the rate. What was owed at another rate is forgiven."""
        if rate != self._rate:
            self._rate = rate
            self.is_set = rate < UNLIMITED
            self._tokens = rate * _BURST_S
            self._at = now

    def available(self, now: float) -> float:
        """Return the bytes that may be copied now; negative if the quota is exceeded."""
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._rate * _BURST_S)
        self._at = now
        return self._tokens

    def is_exceeded(self, now: float) -> bool:
        return self.is_set and self.available(now) <= 0

    def record(self, size: int, now: float) -> None:
        if self.is_set:
            self.copied += size
            self._tokens = max(self.available(now) - size, -self._rate * _MAX_DEBT_S)

    def recorded_wait_s(self, size: int, now: float) -> float:
        """Record bytes, and return the time until the quota is no longer exceeded."""
        self.record(size, now)
        return self.wait_s(now)

    def wait_s(self, now: float) -> float:
        """Return the time until the quota is no longer exceeded."""
        if not self.is_exceeded(now):
            return 0.0
        return -self._tokens / self._rate if self._rate else _EMPTY_RATE_WAIT_S


class ReplicaThrottle(ReplicationQuota):
    """The throttle of one side, leader or follower, on one broker."""

    __slots__ = ("_is_leader", "_replicas")

    def __init__(self, *, is_leader: bool) -> None:
        super().__init__()
        self._is_leader = is_leader
        # The throttled replicas of topics that have some, from the configs that were last seen.
        self._replicas: dict[str, tuple[LogConfig, frozenset[str]]] = {}

    def applies(self, partition: TopicPartition, config: LogConfig, broker_id: int) -> bool:
        """Return True if the topic's configs list the replica of this broker. Traffic of other
        replicas neither waits nor counts, nor does that of replicas in sync."""
        listed = (
            config.leader_replication_throttled_replicas
            if self._is_leader
            else config.follower_replication_throttled_replicas
        )
        if not listed:
            return False
        topic, index = partition
        known = self._replicas.get(topic)
        if known is None or known[0] is not config:
            known = self._replicas[topic] = config, frozenset(text.strip() for text in listed)
        return _ALL in known[1] or f"{index}:{broker_id}" in known[1]


class ReplicationThrottles:
    """The throttles of a broker. `log_dirs` is that of moves between its log directories."""

    __slots__ = ("follower", "leader", "log_dirs")

    def __init__(self) -> None:
        self.leader = ReplicaThrottle(is_leader=True)
        self.follower = ReplicaThrottle(is_leader=False)
        self.log_dirs = ReplicationQuota()
