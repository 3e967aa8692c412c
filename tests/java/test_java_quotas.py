"""Quotas beside Apache Kafka: the throttle times of its classes, and the answers of its broker.

Run by `make test-java`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.security.quotas.rates import TokenBucket, WindowedRate, Windows
from tests.e2e.raw_connection import RawConnection
from tests.java.kafka_jars import compile_java, run_java
from tests.java.kafka_node import KafkaNode

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("cluster")]

PROPAGATION_S = 10.0
# Kafka's buckets begin full because its clock is far from zero.
START_MS = 1_800_000_000_000

Entry = AlterClientQuotasRequest.Entry
Component = DescribeClientQuotasRequest.Component
Parts = dict[str, str | None]
Values = dict[str, float | None]


class Histories:
    """Commands for Kafka's classes, and the throttle times of ours."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.throttles: list[int] = []

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        windows = Windows(rng.choice([1, 2, 5, 11]), 1_000 * rng.choice([1, 2]))
        bound = rng.choice([0.5, 3.0, 1_000.0])
        self.commands.append(f"new {windows.number} {windows.size_ms // 1_000} {bound}")
        kind, now = rng.choice(["rate", "bucket"]), START_MS
        rate, bucket = WindowedRate(), TokenBucket(bound, START_MS, windows)
        for _ in range(300):
            now += rng.choice([0, 1, 37, 500, 999, 1_000, 1_001, 3_000, 20_000])
            value = bound * rng.choice([0.01, 0.5, 1, 2, 40, -0.5])
            self.commands.append(f"{kind} {value} {now}")
            if kind == "rate":
                rate.record(value, now, windows)
                self.throttles.append(rate.throttle_ms(bound, now, windows))
            else:
                bucket.take(value, bound, now, windows)
                self.throttles.append(bucket.throttle_ms(bound, now, windows))


def test_throttle_times_are_those_of_kafka(tmp_path: Path) -> None:
    histories = Histories()
    for seed in range(200):
        histories.run(seed)
    file = tmp_path / "commands"
    file.write_text("\n".join(histories.commands) + "\n")
    printed = run_java("QuotaRates", str(file), classes=compile_java("QuotaRates"))
    kafka = [int(line) for line in printed.splitlines() if line.lstrip("-").isdigit()]
    assert len(kafka) == len(histories.throttles)
    questions = [line for line in histories.commands if not line.startswith("new")]
    different = [
        (question, ours, theirs)
        for question, ours, theirs in zip(questions, histories.throttles, kafka, strict=True)
        # The order of additions differs, so that a time may be rounded in the other direction.
        if abs(ours - theirs) > 1
    ]
    assert different == []


# Requests


def entry(parts: Parts, values: Values) -> Entry:
    return Entry(
        entity=tuple(
            Entry.Entity(entity_type=kind, entity_name=name) for kind, name in parts.items()
        ),
        ops=tuple(
            Entry.Op(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ),
    )


ALTERATIONS: list[tuple[Parts, Values]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 5e9}),
    ({"user": None}, {"request_percentage": 0.25}),
    ({"user": "alice", "client-id": "app"}, {"controller_mutation_rate": 1.5}),
    ({"user": "alice", "client-id": None}, {"producer_byte_rate": 7.0}),
    ({"user": None, "client-id": None}, {"producer_byte_rate": 8.0}),
    ({"client-id": "a b&c"}, {"consumer_byte_rate": 9.0}),
    ({"client-id": None}, {"consumer_byte_rate": 10.0}),
    ({"ip": "10.1.2.3"}, {"connection_creation_rate": 11.0}),
    ({"ip": None}, {"connection_creation_rate": 12.0}),
    ({"user": "alice"}, {"consumer_byte_rate": None, "request_percentage": None}),
    ({"user": "bob"}, {"no_such_key": None}),
    ({"user": "bob"}, {"no_such_key": 1.0}),
    ({"user": "bob"}, {"connection_creation_rate": 1.0}),
    ({"ip": "10.1.2.3"}, {"producer_byte_rate": 1.0}),
    ({"user": "bob"}, {"producer_byte_rate": 0.0}),
    ({"user": "bob"}, {"producer_byte_rate": -3.0}),
    ({"user": "bob"}, {"producer_byte_rate": 1.5}),
    ({"user": "bob"}, {"producer_byte_rate": 1e30}),
    ({"ip": "10.1.2.3"}, {"connection_creation_rate": 2.0**40}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({}, {"producer_byte_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 1.0}),
    ({"ip": "10.1.2.3", "user": "alice"}, {"connection_creation_rate": 1.0}),
    ({"ip": "no such host.invalid"}, {"connection_creation_rate": 1.0}),
]

FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", 0, "alice")], False),
    ([("user", 0, "alice")], True),
    ([("user", 0, "nobody")], False),
    ([("user", 1, None)], False),
    ([("user", 1, None)], True),
    ([("user", 2, None)], False),
    ([("user", 2, None)], True),
    ([("user", 2, None), ("client-id", 2, None)], True),
    ([("user", 0, "alice"), ("client-id", 1, None)], True),
    ([("client-id", 0, "a b&c")], True),
    ([("client-id", 2, None)], False),
    ([("ip", 2, None)], False),
    ([("ip", 1, None)], True),
    ([("ip", 0, "10.1.2.3")], False),
    ([("ip", 2, None), ("user", 2, None)], False),
    ([("user", 0, "a"), ("user", 1, None)], False),
    ([("", 0, "a")], False),
    ([("group", 0, "a")], False),
    ([("user", 0, None)], False),
    ([("user", 1, "a")], False),
    ([("user", 2, "a")], False),
    ([("user", 9, None)], False),
]


def alter(
    connection: RawConnection, entries: list[Entry], *, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    """Return errors and messages, sorted by entity."""
    request = AlterClientQuotasRequest(entries=tuple(entries), validate_only=validate_only)
    response = connection.request(request, 1, AlterClientQuotasResponse)
    return sorted(((each.error_code, each.error_message) for each in response.entries), key=str)


def describe(
    connection: RawConnection, components: list[tuple[str, int, str | None]], strict: bool
) -> object:
    """Return the error, or the entities with their quotas."""
    request = DescribeClientQuotasRequest(
        components=tuple(
            Component(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ),
        strict=strict,
    )
    response = connection.request(request, 1, DescribeClientQuotasResponse)
    if response.error_code:
        return response.error_code, response.error_message, response.entries
    return {
        frozenset((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries or ()
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawConnection, RawConnection]]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), {})
    node.start()
    try:
        with (
            penstock.Cluster() as cluster,
            RawConnection(cluster.bootstrap_servers) as ours,
            RawConnection(node.bootstrap) as theirs,
        ):
            yield ours, theirs
    finally:
        node.stop()


def test_the_answers_are_those_of_kafka(both: tuple[RawConnection, RawConnection]) -> None:
    ours, theirs = both
    for parts, values in ALTERATIONS:
        for validate_only in (True, False):
            request = [entry(parts, values)]
            expected = alter(theirs, request, validate_only=validate_only)
            answered = alter(ours, request, validate_only=validate_only)
            assert answered == expected, (parts, values)
    duplicates = [entry({"user": "carol"}, {"producer_byte_rate": 1.0})] * 2
    assert [code for code, _text in alter(ours, duplicates)] == [
        code for code, _text in alter(theirs, duplicates)
    ]
    # Kafka's broker has the records a moment after the response.
    deadline = time.monotonic() + PROPAGATION_S
    while describe(ours, [], False) != describe(theirs, [], False):
        assert time.monotonic() < deadline, (describe(ours, [], False), describe(theirs, [], False))
        time.sleep(0.05)
    different = [
        (
            components,
            strict,
            describe(ours, components, strict),
            describe(theirs, components, strict),
        )
        for components, strict in FILTERS
        if describe(ours, components, strict) != describe(theirs, components, strict)
    ]
    assert different == []
