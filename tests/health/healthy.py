"""A healthy cluster of three brokers, which tests break in one place each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from penstock.health.examine import examine
from penstock.health.findings import Finding
from penstock.health.observations import (
    Broker,
    BrokerDefaults,
    LogDir,
    Node,
    NodeState,
    Observation,
    Offsets,
    Partition,
    Probe,
    Quorum,
    QuorumReplica,
    Reach,
    Topic,
)
from penstock.ids import TopicPartition

NOW_MS = int(datetime(2026, 11, 18, 12, 3, 12, tzinfo=UTC).timestamp() * 1000)
PAYMENTS = TopicPartition("payments", 3)
BROKERS = (1, 2, 3)


def at(clock: str) -> int:
    """Return a time of the same day, such as 12:02:58."""
    hours, minutes, seconds = map(int, clock.split(":"))
    return int(datetime(2026, 11, 18, hours, minutes, seconds, tzinfo=UTC).timestamp() * 1000)


def probe(broker_id: int, reach: Reach = Reach.KAFKA, **fields: Any) -> Probe:
    return Probe("127.0.0.1", 9091 + broker_id, reach, cluster_id="penstock", **fields)


def broker(broker_id: int, **fields: Any) -> Broker:
    directory = LogDir("/data", total_bytes=10**12, usable_bytes=6 * 10**11)
    seen = Broker(
        broker_id,
        "127.0.0.1",
        9091 + broker_id,
        probe=probe(broker_id),
        last_metadata_fetch_ms=NOW_MS - 300,
        log_dirs=(directory,),
    )
    return replace(seen, **fields)


def partition(name: TopicPartition = PAYMENTS, **fields: Any) -> Partition:
    return replace(Partition(name, 1, BROKERS, BROKERS), **fields)


def topic(name: str = "payments", **fields: Any) -> Topic:
    seen = Topic(name, False, 6, 3, min_insync=2, unclean_election=False, has_own_configs=True)
    return replace(seen, **{"rate": 10.0, **fields})


def healthy(**fields: Any) -> Observation:
    names = [TopicPartition("payments", index) for index in range(6)]
    voters = tuple(QuorumReplica(each, 100, NOW_MS - 200, NOW_MS - 200) for each in BROKERS)
    seen = Observation(
        NOW_MS,
        bootstrap=(probe(1), probe(2)),
        cluster_id="penstock",
        brokers={each: broker(each) for each in BROKERS},
        partitions={name: partition(name) for name in names},
        topics={"payments": topic()},
        defaults=BrokerDefaults(auto_create=True, partitions=1, replication_factor=1),
        quorum=Quorum(1, 5, voters, clock_ahead_ms=12),
        offsets={name: Offsets(0, 1_000, 1_000) for name in names},
        nodes={each: Node(each, NodeState.RUNNING, open_files_limit=524_288) for each in BROKERS},
    )
    return replace(seen, **fields)


def found(seen: Observation) -> dict[str, Finding]:
    """Return the findings by code; a code has at most one here."""
    findings = examine(seen)
    by_code = {finding.code: finding for finding in findings}
    assert len(by_code) == len(findings), [finding.code for finding in findings]
    return by_code


def words(seen: Observation) -> dict[str, str]:
    return {code: finding.sentence(seen.now_ms, seen.zone) for code, finding in found(seen).items()}
