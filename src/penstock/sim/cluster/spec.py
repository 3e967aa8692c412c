"""Draws a simulated cluster from the seed: its nodes, their settings and its topics."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.config.node import NodeConfig, read_node_config
from penstock.ids import TopicPartition

DIRECTORIES = ("/d0", "/d1")
OFFSETS_PARTITIONS = 2
_EVERY_MESSAGE, _NEVER = 1, 2**63 - 1

# Kafka's default timeouts are too long for a run of some seconds. All are shorter here, in about
# the same proportions.
_PROPERTIES = """\
process.roles={roles}
node.id={node_id}
listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={directories}
log.flush.interval.messages={flush_messages}
default.replication.factor=3
min.insync.replicas=2
auto.create.topics.enable=false
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=1000
controller.quorum.election.backoff.max.ms=200
controller.quorum.request.timeout.ms=600
metadata.log.max.record.bytes.between.snapshots={snapshot_bytes}
metadata.max.retention.bytes=0
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
penstock.broker.disconnect.grace.ms={disconnect_grace_ms}
replica.lag.time.max.ms=800
replica.fetch.wait.max.ms=200
replica.fetch.backoff.ms=200
replica.socket.timeout.ms=2000
leader.imbalance.check.interval.seconds=4
log.flush.offset.checkpoint.interval.ms=1000
replica.high.watermark.checkpoint.interval.ms={checkpoint_ms}
offsets.topic.num.partitions={offsets_partitions}
offsets.topic.replication.factor=3
group.min.session.timeout.ms=500
group.initial.rebalance.delay.ms=100
"""
# Settings that the workloads below need.
_WORKLOAD_PROPERTIES = """\
log.retention.check.interval.ms=400
log.segment.delete.delay.ms=300
log.cleaner.backoff.ms=300
group.consumer.session.timeout.ms=1500
group.consumer.min.session.timeout.ms=500
group.consumer.heartbeat.interval.ms=200
group.consumer.min.heartbeat.interval.ms=100
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
"""
# Settings of runs with transactions.
_TRANSACTION_PROPERTIES = """\
transaction.state.log.num.partitions={transaction_partitions}
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.two.phase.commit.enable={two_phase_commit}
transactional.id.expiration.ms={id_expiration_ms}
transaction.remove.expired.transaction.cleanup.interval.ms=700
"""
# Settings of runs with access control. Nodes and the clients of other workloads are anonymous.
_ACL_PROPERTIES = """\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.clients.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""
# Clients that are not super users, and the port of their listener.
WRITER, STRANGER = "writer", "stranger"
CLIENTS_PORT = 9094
TRANSACTION_PARTITIONS = 2
RACKS = ("rack0", "rack1")


class WorkloadKind(Enum):
    """The workloads that a seed may draw, beside producers, readers, an administrator, an impostor
    and a classic group."""

    STATIC_MEMBERS = "static members"
    CONSUMER_GROUP = "consumer group (KIP-848)"
    RACK_READER = "rack-aware reader"
    RECREATED_TOPIC = "topic deleted and created again"
    COMPACTED_TOPIC = "compacted topic"
    TRIMMED_TOPIC = "retention and DeleteRecords"
    CHANGED_SETTINGS = "min.insync.replicas changes"
    DIRECTORY_MOVES = "directory moves"


class CopyKind(Enum):
    """How copiers get the partitions that they copy."""

    CLASSIC = "classic group"
    CONSUMER = "consumer group (KIP-848)"
    ASSIGNED = "assigned partitions"


@dataclass(frozen=True, slots=True)
class TransactionSpec:
    """The transactional clients of a run. `version` is transaction.version, `partitions` are those
    of the two topics that producers write to."""

    version: int
    partitions: tuple[int, int]
    producers: int
    old_producers: int
    two_phase: bool
    replays: bool
    copy: CopyKind | None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """With `unclean`, a replica that is not in sync may become leader, and acknowledged records may
    be lost."""

    name: str
    partitions: int
    factor: int
    min_insync: int
    unclean: bool = False

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """`configs` are the nodes by name. With `flush_every_message`, an acknowledged record is on the
    disks of all in-sync replicas."""

    configs: dict[str, NodeConfig]
    topics: tuple[TopicSpec, ...]
    flush_every_message: bool
    with_group: bool
    workloads: tuple[WorkloadKind, ...] = ()
    # The mean size of the pieces in which a metadata snapshot is fetched, or None for the default.
    # Each piece has from one byte to twice as many.
    snapshot_piece_bytes: int | None = None
    # Several nodes lose power at once, although not every record is synced. Only what was synced
    # must survive (rule 24).
    may_lose_unsynced: bool = False
    transactions: TransactionSpec | None = None
    with_reassignments: bool = False
    with_acls: bool = False

    @property
    def brokers(self) -> list[str]:
        return [name for name, config in self.configs.items() if config.is_broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{name}:9092" for name in self.brokers)

    def name_of(self, node_id: int) -> str:
        return next(name for name, config in self.configs.items() if config.node_id == node_id)


def draw_spec(
    rng: random.Random,
    extras: random.Random | None = None,
    transactions: random.Random | None = None,
    reassignments: random.Random | None = None,
    acls: random.Random | None = None,
) -> ClusterSpec:
    """Draw a cluster. `extras` draws additional workloads and faults, `transactions` transactional
    clients, `reassignments` more brokers, `acls` brokers with an authorizer; without them a seed
    gives the same cluster as before they existed."""
    flush_every_message = rng.random() < 0.3
    settings: dict[str, object] = {
        "offsets_partitions": OFFSETS_PARTITIONS,
        "flush_messages": _EVERY_MESSAGE if flush_every_message else _NEVER,
        "snapshot_bytes": rng.choice((2_000, 20 * 1024 * 1024)),
        "disconnect_grace_ms": rng.choice((100, 100, -1)),
        "checkpoint_ms": rng.choice((300, 5_000)),
        "directories": ",".join(DIRECTORIES[: rng.choice((1, 1, 2))]),
    }
    drawn: dict[str, Any] = {}
    if extras is not None:
        drawn = _draw_extras(extras, settings)
    if transactions is not None:
        drawn |= _draw_transactions(transactions, settings, drawn)
    if reassignments is not None:
        drawn |= {
            "with_reassignments": True,
            "workloads": tuple(drawn.get("workloads", ())[: reassignments.choice((0, 0, 1))]),
            "may_lose_unsynced": False,
        }
    if acls is not None:
        settings["with_acls"] = True
        drawn |= {
            "with_acls": True,
            "workloads": tuple(drawn.get("workloads", ())[: acls.choice((0, 0, 1))]),
            "may_lose_unsynced": False,
        }
    if rng.random() < 0.3:
        roles = {
            101: "controller",
            102: "controller",
            103: "controller",
            1: "broker",
            2: "broker",
            3: "broker",
        }
    else:
        count = rng.choice((3, 3, 4, 5))
        roles = dict.fromkeys(range(1, count + 1), "broker,controller")
    if reassignments is not None:
        brokers = reassignments.choice((4, 5, 5, 6))
        roles |= {number: "broker" for number in range(1, brokers + 1) if number not in roles}
    # At most three nodes are voters: a quorum of five takes longer and covers no more code.
    voters = [number for number, role in roles.items() if "controller" in role][:3]
    roles = {number: role if number in voters else "broker" for number, role in roles.items()}
    return ClusterSpec(
        {
            f"n{number}": _config(number, role, voters, settings, with_extras=extras is not None)
            for number, role in roles.items()
        },
        _draw_topics(rng),
        flush_every_message,
        with_group=rng.random() < 0.5,
        **drawn,
    )


def _draw_extras(rng: random.Random, settings: dict[str, object]) -> dict[str, Any]:
    """Draw one to three workloads, so that no seed takes much longer than without them, and change
    settings for them."""
    workloads = rng.sample(list(WorkloadKind), rng.choice((1, 2, 2, 3)))
    if WorkloadKind.DIRECTORY_MOVES in workloads:
        settings["directories"] = ",".join(DIRECTORIES)
    pieces = None
    if rng.random() < 0.5:
        pieces = rng.choice((15, 100, 1_000))
        settings["snapshot_bytes"] = 2_000
    return {
        "workloads": tuple(sorted(workloads, key=lambda kind: kind.value)),
        "snapshot_piece_bytes": pieces,
        "may_lose_unsynced": rng.random() < 0.08,
    }


def _draw_transactions(
    rng: random.Random, settings: dict[str, object], drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Draw transactional clients. At most one other workload remains, so that a run does not take
    much longer."""
    version = rng.choice((2, 2, 2, 2, 2, 2, 1, 0))
    two_phase = version == 2 and rng.random() < 0.35
    transactions = TransactionSpec(
        version,
        (rng.choice((1, 2)), rng.choice((1, 2))),
        producers=rng.choice((1, 2)),
        old_producers=rng.choice((0, 1)),
        two_phase=two_phase,
        replays=rng.random() < 0.7,
        copy=rng.choice((None, *CopyKind)),
    )
    settings |= {
        "transaction_partitions": TRANSACTION_PARTITIONS,
        "two_phase_commit": str(two_phase).lower(),
        # Ids expire while their producers pause, or not at all.
        "id_expiration_ms": rng.choice((604_800_000,) * 9 + (400,)),
    }
    return {
        "transactions": transactions,
        "workloads": tuple(drawn.get("workloads", ())[: rng.choice((0, 0, 1))]),
        "may_lose_unsynced": False,
    }


def _config(
    number: int,
    roles: str,
    voters: list[int],
    settings: Mapping[str, object],
    *,
    with_extras: bool,
) -> NodeConfig:
    listeners = [f"PLAINTEXT://n{number}:9092"] * ("broker" in roles) + [
        f"CONTROLLER://n{number}:9093"
    ] * ("controller" in roles)
    if "with_acls" in settings and "broker" in roles:
        listeners.append(f"CLIENTS://n{number}:{CLIENTS_PORT}")
    text = _PROPERTIES.format(
        roles=roles,
        node_id=number,
        listeners=",".join(listeners),
        voters=",".join(f"{voter}@n{voter}:9093" for voter in voters),
        **settings,
    )
    if with_extras:
        text += _WORKLOAD_PROPERTIES + f"broker.rack={RACKS[number % len(RACKS)]}\n"
    if "transaction_partitions" in settings:
        text += _TRANSACTION_PROPERTIES.format(**settings)
    if "with_acls" in settings:
        users = " ".join(f'user_{user}="{user}-secret"' for user in (WRITER, STRANGER))
        text += _ACL_PROPERTIES.format(users=users)
    return read_node_config(text.encode(), f"node {number} of the simulation")


def _draw_topics(rng: random.Random) -> tuple[TopicSpec, ...]:
    topics = [TopicSpec("safe", rng.choice((1, 2, 3)), 3, 2)]
    if rng.random() < 0.4:
        topics.append(TopicSpec("pair", 1, 2, 1))
    if rng.random() < 0.3:
        topics.append(TopicSpec("wild", 1, 2, 1, unclean=True))
    return tuple(topics)
