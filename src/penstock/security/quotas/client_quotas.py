"""The quotas of a node's clients: byte rates, request time, mutations of partitions (KIP-599), and
connection rates of addresses (KIP-612). PURE.

Each `record` returns for how long the client is throttled. What a client used is in a sensor: one
per user, client id or pair, as `precedence` finds it. A client chooses its id, and may invent many.
So sensors are bounded, and those that have nothing to remember are dropped.

Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Generic, Protocol, TypeVar

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import EXPIRED_SENSORS_A_TURN, MAX_QUOTA_SENSORS
from penstock.security.quotas import entities
from penstock.security.quotas.entities import QuotaEntity, normalized_address
from penstock.security.quotas.precedence import AddressLimits, ClientLimits, SensorKey
from penstock.security.quotas.rates import (
    MAX_THROTTLE_MS,
    TokenBucket,
    WindowedRate,
    Windows,
    rounded_ms,
)

# A consumer that fetched whatever has become free since its last request would ask all the time.
_LEAST_ROOM_MS = 50
_QUOTA_EXCEEDED = "The throttling quota has been exceeded."


class _Sensor(Protocol):
    def is_idle(self, now: int, windows: Windows) -> bool: ...


K = TypeVar("K")
S = TypeVar("S", bound=_Sensor)


class Sensors(Generic[K, S]):
    """The least recently used first. The one that goes when there are too many is that of a client
    that has been quiet for the longest."""

    __slots__ = ("_most", "_sensors", "windows")

    def __init__(self, windows: Windows, most: int = MAX_QUOTA_SENSORS) -> None:
        self.windows = windows
        self._most = most
        self._sensors: OrderedDict[K, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sensors)

    def get(self, key: K, now: int, make: Callable[[], S]) -> S:
        sensor = self._sensors.get(key)
        if sensor is not None:
            self._sensors.move_to_end(key)
            return sensor
        self.expire(now, 2)
        if len(self._sensors) >= self._most:
            self._sensors.popitem(last=False)
        sensor = self._sensors[key] = make()
        return sensor

    def expire(self, now: int, most: int = EXPIRED_SENSORS_A_TURN) -> None:
        """Drop some of the sensors that have nothing to remember."""
        for key, sensor in list(islice(self._sensors.items(), most)):
            if not sensor.is_idle(now, self.windows):
                return
            del self._sensors[key]


class ThrottleCounts:
    """How often and for how long clients were throttled."""

    __slots__ = ("throttled", "throttled_ms")

    def __init__(self) -> None:
        self.throttled = 0
        self.throttled_ms = 0

    def count(self, throttle_ms: int) -> int:
        if throttle_ms:
            self.throttled += 1
            self.throttled_ms += throttle_ms
        return throttle_ms


class RateQuota:
    """The quota of bytes or of request time per second. `max_throttle_ms` bounds the throttle time
    of one request. `is_set` is False if no client has a quota."""

    def __init__(self, key: str, windows: Windows, max_throttle_ms: int | None = None) -> None:
        self.key = key
        self.is_set = False
        self.counts = ThrottleCounts()
        self.sensors: Sensors[SensorKey, WindowedRate] = Sensors(windows)
        self._windows = windows
        self._limits = ClientLimits()
        self._max_throttle_ms = max_throttle_ms

    def set(self, entity: QuotaEntity, value: float | None) -> None:
        self._limits.set(entity, value)
        self.is_set = bool(self._limits)

    def record(self, user: str, client_id: str, value: float, now: int) -> int:
        """Record a value, and return the throttle time."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return 0
        rate = self.sensors.get(limit.sensor, now, WindowedRate)
        rate.record(value, now, self._windows)
        throttle_ms = rate.throttle_ms(limit.value, now, self._windows)
        if self._max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, self._max_throttle_ms)
        return self.counts.count(throttle_ms)

    def admit(self, user: str, client_id: str, value: float, now: int) -> int:
        """Record a value if that does not exceed the quota. Otherwise return the throttle time.

        A value that exceeds the quota alone, such as a batch of a megabyte with a quota of a
        kilobyte, is admitted if there is no other. The client then waits until the quota allows
        it. In Kafka it waits forever."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return 0
        windows = self._windows
        rate = self.sensors.get(limit.sensor, now, WindowedRate)
        if now < rate.owed_until:
            return self.counts.count(min(rate.owed_until - now, MAX_THROTTLE_MS))
        is_quiet = rate.observed(now, windows)[0] <= 0
        rate.record(value, now, windows)
        throttle_ms = rate.throttle_ms(limit.value, now, windows)
        if throttle_ms and is_quiet:
            rate.owed_until = now + rounded_ms(value / limit.value * 1000)
            return 0
        if throttle_ms:
            rate.record(-value, now, windows)
        return self.counts.count(throttle_ms)

    def room(self, user: str, client_id: str, now: int) -> float | None:
        """Return how much a client may record now without being throttled, but not less than a
        twentieth of a second's worth; None if it has no quota. Kafka has the room of a quiet
        client here, so that a busy one is refused more often, and stays below its quota."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        rate = self.sensors.get(limit.sensor, now, WindowedRate)
        observed, span_ms = rate.observed(now, self._windows)
        return max((limit.value - observed) * span_ms, limit.value * _LEAST_ROOM_MS) / 1000


class MutationQuotas:
    """The quota of partitions that are created and deleted per second (KIP-599)."""

    key = entities.CONTROLLER_MUTATION_RATE

    def __init__(self, windows: Windows) -> None:
        self.is_set = False
        self.counts = ThrottleCounts()
        self.sensors: Sensors[SensorKey, TokenBucket] = Sensors(windows)
        self._windows = windows
        self._limits = ClientLimits()

    def set(self, entity: QuotaEntity, value: float | None) -> None:
        self._limits.set(entity, value)
        self.is_set = bool(self._limits)

    def of_request(
        self, user: str, client_id: str, now: int, *, is_strict: bool
    ) -> MutationQuota | None:
        """Return the quota that one request of a client uses; None if it has none."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        bucket = self.sensors.get(
            limit.sensor, now, lambda: TokenBucket(limit.value, now, self._windows)
        )
        return MutationQuota(
            bucket, limit.value, now, self._windows, self.counts, is_strict=is_strict
        )


class MutationQuota:
    """The use of a quota by one request. If it is strict, partitions are refused while the quota is
    exceeded. Otherwise, as in versions that do not know the error, the client is throttled."""

    def __init__(
        self,
        bucket: TokenBucket,
        rate: float,
        now: int,
        windows: Windows,
        counts: ThrottleCounts,
        *,
        is_strict: bool,
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._now = now
        self._windows = windows
        self._counts = counts
        self._is_strict = is_strict
        self._recorded_ms = 0

    def record(self, partitions: int) -> None:
        """Record that a topic is created, extended or deleted. Raises KafkaError
        THROTTLING_QUOTA_EXCEEDED if that is refused."""
        bucket, rate, now, windows = self._bucket, self._rate, self._now, self._windows
        if self._is_strict:
            throttle_ms = bucket.throttle_ms(rate, now, windows)
            if throttle_ms:
                self._recorded_ms = throttle_ms
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _QUOTA_EXCEEDED)
            bucket.take(partitions, rate, now, windows)
        else:
            bucket.take(partitions, rate, now, windows)
            self._recorded_ms = bucket.throttle_ms(rate, now, windows)

    def throttle_ms(self, now: int) -> int:
        """Return the throttle time of the response, which leaves some time after the decision."""
        return self._counts.count(max(0, self._recorded_ms - (now - self._now)))


class ConnectionRates:
    """The quota of connections that an address opens per second."""

    key = entities.CONNECTION_CREATION_RATE

    def __init__(self, windows: Windows) -> None:
        self.is_set = False
        self.counts = ThrottleCounts()
        self.sensors: Sensors[str, WindowedRate] = Sensors(windows)
        self._windows = windows
        self._limits = AddressLimits()

    def set(self, entity: QuotaEntity, value: float | None) -> None:
        self._limits.set(entity, value)
        self.is_set = bool(self._limits)

    def admit(self, address: str, now: int) -> int:
        """Record a connection, or return the throttle time if the address opens too many."""
        address = normalized_address(address) or address
        limit = self._limits.find(address)
        if limit is None:
            return 0
        rate = self.sensors.get(address, now, WindowedRate)
        rate.record(1, now, self._windows)
        throttle_ms = rate.throttle_ms(limit, now, self._windows)
        if throttle_ms:
            rate.record(-1, now, self._windows)
        return self.counts.count(min(throttle_ms, self._windows.size_ms))


class ClientQuotas:
    """All quotas of a node. `is_set` is False if no user and no client id has a quota: then
    requests cost one comparison."""

    def __init__(self, windows: Windows | None = None, controller: Windows | None = None) -> None:
        windows = windows or Windows()
        self.produce = RateQuota(entities.PRODUCER_BYTE_RATE, windows)
        self.fetch = RateQuota(entities.CONSUMER_BYTE_RATE, windows)
        self.request = RateQuota(entities.REQUEST_PERCENTAGE, windows, windows.size_ms)
        self.mutations = MutationQuotas(controller or windows)
        self.connections = ConnectionRates(windows)
        self.is_set = False

    @property
    def all(self) -> tuple[RateQuota | MutationQuotas | ConnectionRates, ...]:
        return self.produce, self.fetch, self.request, self.mutations, self.connections

    def apply(
        self,
        changed: Iterable[QuotaEntity],
        values: Mapping[QuotaEntity, Mapping[str, float]],
    ) -> None:
        """Take over the values of entities that changed."""
        for entity in changed:
            after = values.get(entity, {})
            for quota in self.all:
                quota.set(entity, after.get(quota.key))
        self.is_set = any(
            quota.is_set for quota in (self.produce, self.fetch, self.request, self.mutations)
        )

    def expire(self, now: int) -> None:
        """Drop sensors that have nothing to remember; called periodically."""
        for quota in self.all:
            quota.sensors.expire(now)
