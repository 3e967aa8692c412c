"""Client quotas: precedence, rates over windows, token buckets, and the bound on sensors."""

from __future__ import annotations

import itertools
import random

import pytest

from penstock.errors import ErrorCode, KafkaError
from penstock.security.quotas.client_quotas import (
    ClientQuotas,
    ConnectionRates,
    MutationQuotas,
    RateQuota,
    Sensors,
)
from penstock.security.quotas.entities import (
    CLIENT_ID,
    IP,
    USER,
    QuotaEntity,
    QuotaFilter,
    normalized_address,
    quota_entity,
    quota_filter,
)
from penstock.security.quotas.precedence import ClientLimits
from penstock.security.quotas.rates import MAX_THROTTLE_MS, TokenBucket, WindowedRate, Windows

WINDOWS = Windows(11, 1_000)
ALICE: QuotaEntity = ((USER, "alice"),)
# From the highest precedence to the lowest, with the sensor that alice's client "app" uses.
LEVELS: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({USER: "alice", CLIENT_ID: "app"}, ("alice", "app")),
    ({USER: "alice", CLIENT_ID: None}, ("alice", "app")),
    ({USER: "alice"}, ("alice", None)),
    ({USER: None, CLIENT_ID: "app"}, ("alice", "app")),
    ({USER: None, CLIENT_ID: None}, ("alice", "app")),
    ({USER: None}, ("alice", None)),
    ({CLIENT_ID: "app"}, (None, "app")),
    ({CLIENT_ID: None}, (None, "app")),
]


# Precedence


@pytest.mark.parametrize("present", list(itertools.product([False, True], repeat=len(LEVELS))))
def test_the_most_specific_quota_applies(present: tuple[bool, ...]) -> None:
    limits = ClientLimits()
    for number, (parts, _sensor) in enumerate(LEVELS):
        if present[number]:
            limits.set(quota_entity(parts.items()), number + 1)
    found = limits.find("alice", "app")
    first = present.index(True) if any(present) else None
    expected = None if first is None else (first + 1, LEVELS[first][1])
    assert found == expected
    assert bool(limits) == any(present)


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_other_clients_have_the_quotas_of_defaults_alone(level: int) -> None:
    parts, _sensor = LEVELS[level]
    limits = ClientLimits()
    limits.set(quota_entity(parts.items()), 5)
    assert (limits.find("bob", "tool") is None) == any(parts.values())
    limits.set(quota_entity(parts.items()), None)
    assert limits.find("alice", "app") is None
    assert not limits


def test_a_client_without_an_id_has_the_default() -> None:
    limits = ClientLimits()
    limits.set(((CLIENT_ID, None),), 5)
    assert limits.find("alice", "") == (5, (None, ""))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_value_that_the_controller_would_refuse_has_no_effect(value: float) -> None:
    limits = ClientLimits()
    limits.set(ALICE, value)
    assert limits.find("alice", "app") is None


# Rates


def test_the_first_values_are_measured_over_all_windows() -> None:
    rate = WindowedRate()
    rate.record(10_000, 500, WINDOWS)
    assert rate.observed(500, WINDOWS) == (1_000, 10_000)
    assert rate.observed(1_250, WINDOWS) == (10_000 * 1_000 / 10_750, 10_750)


def test_a_rate_is_measured_since_its_oldest_sample_began() -> None:
    rate = WindowedRate()
    for second in range(12):
        rate.record(100, second * 1_000, WINDOWS)
    # The first sample had its last value 11 s ago.
    assert rate.observed(11_000, WINDOWS) == (100 * 11 * 1_000 / 10_000, 10_000)
    assert rate.observed(11_500, WINDOWS) == (100 * 11 * 1_000 / 10_500, 10_500)


def test_values_are_forgotten_after_all_windows() -> None:
    rate = WindowedRate()
    rate.record(1e9, 0, WINDOWS)
    assert not rate.is_idle(10_999, WINDOWS)
    assert rate.observed(11_000, WINDOWS)[0] == 0
    assert rate.is_idle(11_000, WINDOWS)


@pytest.mark.parametrize(
    ("value", "bound", "throttle_ms"),
    [
        (10_000, 1_000, 0),  # exactly the quota
        (15_000, 1_000, 5_000),  # (1500 - 1000) / 1000 * 10 s
        (10_001, 1_000, 1),
        (1e30, 1, MAX_THROTTLE_MS),
    ],
)
def test_the_throttle_time_brings_the_rate_back_to_the_quota(
    value: float, bound: float, throttle_ms: int
) -> None:
    rate = WindowedRate()
    rate.record(value, 0, WINDOWS)
    assert rate.throttle_ms(bound, 0, WINDOWS) == throttle_ms


@pytest.mark.parametrize("size", [1_000, 50_000, 300_000])
@pytest.mark.parametrize("is_fetch", [False, True])
def test_a_busy_client_is_held_to_its_quota(size: int, is_fetch: bool) -> None:
    quota = RateQuota("k", WINDOWS)
    quota.set(ALICE, 1_000_000)
    now, total, first = 1_000, 0, 0
    while now < 121_000:
        call = quota.admit if is_fetch else quota.record
        throttle_ms = call("alice", "app", size, now)
        if now >= 11_000 and (not is_fetch or not throttle_ms):
            first, total = first or now, total + size
        now += throttle_ms + 1
    assert 0.90 <= total / (now - first) / 1_000 <= 1.05


def test_a_refused_value_does_not_count() -> None:
    quota = RateQuota("k", WINDOWS)
    quota.set(ALICE, 1_000)
    assert quota.admit("alice", "app", 9_000, 0) == 0
    assert quota.admit("alice", "other", 2_000, 0) == 1_000
    assert quota.admit("alice", "app", 1_000, 0) == 0
    assert (quota.counts.throttled, quota.counts.throttled_ms) == (1, 1_000)


def test_a_value_larger_than_all_windows_is_admitted_and_made_up_for() -> None:
    quota = RateQuota("k", WINDOWS)
    quota.set(ALICE, 1_000)
    assert quota.room("alice", "app", 0) == 10_000
    now, admitted = 0, 0
    while now < 1_000_000:
        throttle_ms = quota.admit("alice", "app", 50_000, now)
        admitted += 0 if throttle_ms else 50_000
        now += throttle_ms + 1
    assert admitted <= 1_000 * 1_000 + 50_000
    assert admitted >= 900_000
    assert quota.room("bob", "app", 0) is None


def test_a_consumer_has_the_room_that_is_left() -> None:
    quota = RateQuota("k", WINDOWS)
    quota.set(ALICE, 1_000)
    assert quota.admit("alice", "app", 4_000, 0) == 0
    assert quota.room("alice", "app", 0) == 6_000
    assert quota.room("alice", "app", 500) == 6_500
    assert quota.admit("alice", "app", 6_490, 500) == 0
    assert quota.room("alice", "app", 500) == 50


@pytest.mark.parametrize("batch", [10_000, 100_000])
def test_a_consumer_that_takes_the_room_uses_its_quota(batch: int) -> None:
    quota = RateQuota("k", WINDOWS)
    quota.set(ALICE, 1_000_000)
    now, total = 1_000, 0
    while now < 121_000:
        size = int(quota.room("alice", "app", now) or 0) // batch * batch or batch
        throttle_ms = quota.admit("alice", "app", min(size, 1_000_000), now)
        if now >= 33_000 and not throttle_ms:
            total += min(size, 1_000_000)
        now += throttle_ms + 1
    assert 0.97 <= total / (now - 33_000) / 1_000 <= 1.03


def test_the_throttle_time_of_a_request_is_at_most_a_window() -> None:
    quotas = ClientQuotas(WINDOWS)
    quotas.apply([ALICE], {ALICE: {"request_percentage": 1.0}})
    assert quotas.request.record("alice", "app", 10_000, 0) == 1_000


# Mutations


def test_a_bucket_begins_full_and_fills_at_its_rate() -> None:
    bucket = TokenBucket(2, 0, WINDOWS)
    assert bucket.available(2, 0, WINDOWS) == 22
    bucket.take(30, 2, 0, WINDOWS)
    assert bucket.throttle_ms(2, 0, WINDOWS) == 4_000
    assert bucket.throttle_ms(2, 3_999, WINDOWS) == 1
    assert bucket.available(2, 4_500, WINDOWS) == pytest.approx(1)
    assert not bucket.is_idle(14_000, WINDOWS)
    assert bucket.is_idle(15_001, WINDOWS)


def test_mutations_beyond_the_quota_are_refused_or_throttled() -> None:
    quotas = MutationQuotas(WINDOWS)
    assert quotas.of_request("alice", "app", 0, is_strict=True) is None
    quotas.set(ALICE, 1)
    strict = quotas.of_request("alice", "app", 0, is_strict=True)
    assert strict is not None
    # The quota is not exceeded before the first one, which may be large.
    strict.record(14)
    assert strict.throttle_ms(0) == 0
    with pytest.raises(KafkaError) as refused:
        strict.record(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (strict.throttle_ms(0), strict.throttle_ms(1_000), strict.throttle_ms(9_000)) == (
        3_000,
        2_000,
        0,
    )
    permissive = quotas.of_request("alice", "app", 0, is_strict=False)
    assert permissive is not None
    permissive.record(2)
    assert permissive.throttle_ms(0) == 5_000


# Connections


def test_connections_of_an_address_have_its_rate_or_the_default() -> None:
    rates = ConnectionRates(WINDOWS)
    rates.set(((IP, None),), 1)
    rates.set(((IP, "10.0.0.1"),), 5)
    opened = {
        address: sum(rates.admit(address, 0) == 0 for _ in range(100))
        for address in ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3")
    }
    assert opened == {"10.0.0.1": 50, "10.0.0.2": 10, "::ffff:10.0.0.3": 10}
    assert rates.admit("10.0.0.3", 0) == 1_000
    rates.set(((IP, None),), None)
    assert rates.admit("10.0.0.3", 0) == 0
    assert rates.is_set


@pytest.mark.parametrize(
    ("address", "normalized"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("localhost", None),
        ("10.1", None),
    ],
)
def test_addresses_have_one_spelling(address: str, normalized: str | None) -> None:
    assert normalized_address(address) == normalized


# Sensors


def test_sensors_are_bounded_and_quiet_ones_are_dropped() -> None:
    sensors: Sensors[str, WindowedRate] = Sensors(WINDOWS, most=3)
    for name in "abcd":
        sensors.get(name, 0, WindowedRate).record(1, 0, WINDOWS)
    assert len(sensors) == 3
    kept = sensors.get("b", 0, WindowedRate)
    assert sensors.get("b", 0, WindowedRate) is kept
    sensors.expire(10_999)
    assert len(sensors) == 3
    sensors.expire(11_000)
    assert len(sensors) == 0


def test_invented_client_ids_do_not_fill_the_memory() -> None:
    quotas = ClientQuotas(WINDOWS)
    entity: QuotaEntity = ((CLIENT_ID, None),)
    quotas.apply([entity], {entity: {"producer_byte_rate": 1_000.0}})
    for number in range(25_000):
        quotas.produce.record("alice", f"client-{number}", 1, 0)
    assert len(quotas.produce.sensors) == 10_000
    for second in range(11, 100):
        quotas.expire(second * 1_000)
    assert len(quotas.produce.sensors) == 0


def test_long_client_ids_do_not_fill_the_memory() -> None:
    """A client id has up to 32 kB, and one rare character makes it four times as large here."""
    limits = ClientLimits()
    limits.set(((CLIENT_ID, None),), 1_000.0)
    sensors = set()
    for number in range(100):
        applied = limits.find("alice", f"{number}\N{OCTOPUS}{'x' * 30_000}")
        assert applied is not None
        sensors.add(applied.sensor)
    assert len(sensors) == 100
    assert max(len(client_id or "") for _user, client_id in sensors) <= 64


def test_changes_of_quotas_apply_at_once() -> None:
    quotas = ClientQuotas(WINDOWS)
    states = [quotas.is_set]
    quotas.apply([ALICE], {ALICE: {"producer_byte_rate": 100.0, "unknown": 1.0}})
    states += [quotas.is_set, quotas.fetch.is_set]
    assert states == [False, True, False]
    assert quotas.produce.record("alice", "app", 2_000, 0) == 10_000
    quotas.apply([ALICE], {ALICE: {"producer_byte_rate": 1_000.0}})
    assert quotas.produce.record("alice", "app", 1, 0) == 0
    quotas.apply([ALICE], {})
    assert not quotas.is_set
    assert quotas.produce.record("alice", "app", 1e9, 0) == 0


# Filters


@pytest.mark.parametrize(
    ("components", "strict", "matched"),
    [
        ([], False, "user alice|user -|user alice client-id app|client-id app|ip 10.0.0.1"),
        ([], True, ""),
        ([(USER, 0, "alice")], False, "user alice|user alice client-id app"),
        ([(USER, 0, "alice")], True, "user alice"),
        ([(USER, 1, None)], True, "user -"),
        ([(USER, 2, None)], True, "user alice|user -"),
        ([(USER, 2, None), (CLIENT_ID, 0, "app")], True, "user alice client-id app"),
        ([(IP, 2, None)], False, "ip 10.0.0.1"),
        ([(IP, 1, None)], False, ""),
    ],
)
def test_filters_match_names_defaults_and_types(
    components: list[tuple[str, int, str | None]], strict: bool, matched: str
) -> None:
    entities: dict[str, dict[str, str | None]] = {
        "user alice": {USER: "alice"},
        "user -": {USER: None},
        "user alice client-id app": {USER: "alice", CLIENT_ID: "app"},
        "client-id app": {CLIENT_ID: "app"},
        "ip 10.0.0.1": {IP: "10.0.0.1"},
    }
    wanted = quota_filter(components, strict=strict)
    found = [
        name for name, parts in entities.items() if wanted.matches(quota_entity(parts.items()))
    ]
    assert "|".join(found) == matched


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "x"), (USER, 1, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([(USER, 0, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 1, "x")], ErrorCode.INVALID_REQUEST),
        ([(USER, 2, "x")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "x"), (IP, 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_are_not_valid(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        quota_filter(components, strict=False)
    assert refused.value.code is code


def test_a_filter_and_its_parts_match_alike() -> None:
    rng = random.Random(7)
    names = [None, "a", "b"]
    for _ in range(500):
        entity = quota_entity(
            (kind, rng.choice(names)) for kind in rng.sample([USER, CLIENT_ID], rng.randint(1, 2))
        )
        wanted = QuotaFilter({USER: rng.choice(names)}, strict=rng.random() < 0.5)
        parts = dict(entity)
        expected = (
            USER in parts
            and parts[USER] == wanted.names[USER]
            and (not wanted.strict or len(parts) == 1)
        )
        assert wanted.matches(entity) == expected
