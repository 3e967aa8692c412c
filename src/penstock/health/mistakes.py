"""Mistakes that introductions to Kafka warn of: settings that work until something fails.

A cluster of one broker is for development. Hints about replication would be noise there.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.health.findings import Finding, Level, Reason
from penstock.health.observations import Observation, Topic
from penstock.health.wording import brokers, counted

# The replication factor that survives the failure of a broker while another one is maintained.
_FACTOR = 3
# Kafka's guideline for replicas of one broker.
MANY_REPLICAS = 4_000
# One partition has one leader, and one consumer per group. Above this rate they limit the topic.
BUSY_RECORDS_A_SECOND = 1_000


def check_mistakes(seen: Observation) -> Iterator[Finding]:
    several = len(seen.brokers) > 1
    for topic in seen.topics.values():
        if several:
            yield from _replication(topic, len(seen.brokers))
        yield from _settings(topic)
    if several:
        yield from _auto_created(seen)
        yield from _racks(seen)
    yield from _many_replicas(seen)
    for name in seen.missing_topics:
        yield Finding(
            "topic-not-found",
            Level.PROBLEM,
            (f"topic {name}",),
            "does not exist",
            (),
            f"create it: penstock topics create {name}",
        )


def _replication(topic: Topic, broker_count: int) -> Iterator[Finding]:
    factor, required = topic.replication_factor, topic.min_insync
    is_pair = broker_count == 2
    if factor == 1:
        yield _of_topic(
            topic,
            "replication-factor-1",
            Level.WARNING,
            "has one replica: it is not available while its broker is down, and lost with its disk",
            f"raise the replication factor to {min(broker_count, _FACTOR)} with "
            "kafka-reassign-partitions.sh",
        )
    elif required is not None and required == factor:
        yield _of_topic(
            topic,
            "min-insync-equals-factor",
            Level.NOTE if is_pair else Level.WARNING,
            f"has min.insync.replicas {required} and replication factor {factor}: any broker that "
            "stops makes it refuse writes with acks=all",
            "add a third broker, then raise the replication factor to 3. With "
            "min.insync.replicas 1, acks=all may acknowledge a record that one broker has"
            if is_pair
            else "set min.insync.replicas to one less than the replication factor",
        )
    elif required == 1 and not topic.internal:
        yield _of_topic(
            topic,
            "min-insync-1",
            Level.WARNING if factor > 2 else Level.NOTE,
            f"has min.insync.replicas 1 and replication factor {factor}: acks=all may acknowledge "
            "a record that only the leader has",
            f"{'add a third broker, then ' if is_pair else ''}set min.insync.replicas to 2, with "
            "replication factor 3",
        )


def _settings(topic: Topic) -> Iterator[Finding]:
    factor, required = topic.replication_factor, topic.min_insync
    if required is not None and required > factor:
        yield _of_topic(
            topic,
            "min-insync-above-factor",
            Level.PROBLEM,
            f"has min.insync.replicas {required} and replication factor {factor}: every write "
            "with acks=all is refused",
            "lower min.insync.replicas of the topic, or raise its replication factor",
        )
    if topic.unclean_election and factor > 1:
        yield _of_topic(
            topic,
            "unclean-election",
            Level.WARNING,
            "has unclean.leader.election.enable: a replica that lacks acknowledged records may "
            "become leader",
            "delete that setting, unless losing records is better than waiting for a broker",
        )
    rate = topic.rate or 0
    if topic.partitions == 1 and not topic.internal and rate >= BUSY_RECORDS_A_SECOND:
        yield _of_topic(
            topic,
            "one-busy-partition",
            Level.WARNING,
            f"has one partition and gets {rate:,.0f} records/s: one broker and one consumer of a "
            "group carry all of it",
            "add partitions: penstock topics alter --partitions; records of a key may then change "
            "their partition",
        )


def _auto_created(seen: Observation) -> Iterator[Finding]:
    defaults = seen.defaults
    if defaults is None or not defaults.auto_create or defaults.replication_factor > 1:
        return
    for topic in seen.topics.values():
        if (
            not topic.internal
            and topic.has_own_configs is False
            and topic.partitions == defaults.partitions
            and topic.replication_factor == defaults.replication_factor
        ):
            yield _of_topic(
                topic,
                "auto-created-topic",
                Level.NOTE,
                "has all default settings, as a topic that a client creates by using its name",
                "set auto.create.topics.enable=false, or "
                f"default.replication.factor={min(len(seen.brokers), _FACTOR)} and "
                "num.partitions, and create topics on purpose",
            )


def _racks(seen: Observation) -> Iterator[Finding]:
    hosts = {broker.host for broker in seen.brokers.values()}
    without = sorted(broker.id for broker in seen.brokers.values() if not broker.rack)
    if len(hosts) < 2 or not without:
        return
    if len(without) < len(seen.brokers):
        says, level = f"has {brokers(without)} without a rack, and others with one", Level.WARNING
    else:
        says, level = f"has brokers on {len(hosts)} hosts, and no racks", Level.NOTE
    yield Finding(
        "no-racks",
        level,
        ("the cluster",),
        says,
        (
            Reason(
                "no-racks",
                "replicas of a partition may be in the same rack or zone, and fail together",
            ),
        ),
        "set broker.rack of every broker, then: penstock rebalance",
    )


def _many_replicas(seen: Observation) -> Iterator[Finding]:
    held: dict[int, int] = {}
    for partition in seen.partitions.values():
        for replica in partition.replicas:
            held[replica] = held.get(replica, 0) + 1
    for broker_id, count in sorted(held.items()):
        if count > MANY_REPLICAS:
            yield Finding(
                "too-many-partitions",
                Level.WARNING,
                (f"broker {broker_id}",),
                f"has {counted(count, 'replica')}, more than the {MANY_REPLICAS:,} that Kafka "
                "recommends for a broker",
                (),
                "add brokers, or use fewer topics and partitions: elections and starts take longer",
            )


def _of_topic(topic: Topic, code: str, level: Level, says: str, todo: str) -> Finding:
    return Finding(code, level, (f"topic {topic.name}",), says, (), todo)
