"""What doctor has seen so far, and the clients that it asks with.

The looks at a cluster run side by side and fill one `Notes`. One that fails or times out is noted
as unseen; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from penstock.cli.doctor.pages import NodePage
from penstock.cli.doctor.probe import CLIENT_ID
from penstock.client.client import Client
from penstock.errors import KafkaError, ProtocolError
from penstock.health.observations import (
    Broker,
    BrokerDefaults,
    Event,
    Group,
    Node,
    Observation,
    Offsets,
    Partition,
    Probe,
    Quorum,
    SparkQuery,
    Topic,
    Transaction,
    Unseen,
)
from penstock.ids import TopicPartition
from penstock.world import World

# How long one look may take, and one request in it: a frozen broker must not stop the others.
LOOK_S = 8.0
REQUEST_S = 4.0


@dataclass(slots=True)
class Notes:
    """The fields are those of `Observation`."""

    zone: tzinfo
    bootstrap: tuple[Probe, ...] = ()
    bootstrap_error: str = ""
    cluster_id: str | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    missing_topics: list[str] = field(default_factory=list)
    defaults: BrokerDefaults | None = None
    quorum: Quorum | None = None
    offsets: dict[TopicPartition, Offsets] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    group_count: int = 0
    transactions: list[Transaction] = field(default_factory=list)
    queries: list[SparkQuery] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    unseen: list[Unseen] = field(default_factory=list)
    # By the id of the node.
    pages: dict[int, NodePage] = field(default_factory=dict)
    # Partitions whose last stable offset did not move, and is below the high watermark.
    held: list[TopicPartition] = field(default_factory=list)
    # Whether `topics` has all topics of the cluster.
    all_topics: bool = True

    async def look(self, subject: str, work: Awaitable[None], timeout_s: float = LOOK_S) -> None:
        """Run a look, and note why if it fails."""
        try:
            async with asyncio.timeout(timeout_s):
                await work
        except TimeoutError:
            self.unseen.append(Unseen(subject, f"no answer within {timeout_s:g} s"))
        except KafkaError as error:
            self.unseen.append(Unseen(subject, described(error)))
        except (ProtocolError, OSError, ValueError, LookupError) as error:
            # A broker of another make, or a client of one, may send what we do not expect.
            self.unseen.append(Unseen(subject, str(error) or repr(error)))

    def live_leaders(self) -> dict[TopicPartition, int]:
        """Return the leaders of the partitions whose leaders answer here."""
        reached = {broker.id for broker in self.brokers.values() if is_reached(broker)}
        return {
            name: partition.leader
            for name, partition in self.partitions.items()
            if partition.leader in reached
        }

    def observation(self, now_ms: int) -> Observation:
        self._add_metadata_fetches()
        for broker_id, page in self.pages.items():
            if broker_id in self.brokers:
                self.brokers[broker_id] = replace(
                    self.brokers[broker_id],
                    clock_ahead_ms=page.clock_ahead_ms,
                    flushes=page.flushes,
                    recent_flushes=page.recent_flushes,
                    stalled_dirs=page.stalled_dirs,
                )
        return Observation(
            now_ms,
            self.zone,
            self.bootstrap,
            self.bootstrap_error,
            self.cluster_id,
            self.brokers,
            self.partitions,
            self.topics,
            tuple(self.missing_topics),
            self.defaults,
            self.quorum,
            self.offsets,
            tuple(self.groups),
            self.group_count,
            tuple(self.transactions),
            tuple(self.queries),
            self.nodes,
            self.events,
            tuple(self.unseen),
        )

    def _add_metadata_fetches(self) -> None:
        """A broker fetches the metadata log as a voter or an observer of the quorum. A broker that
        a new leader has not heard from is not among the observers."""
        quorum = self.quorum or Quorum()
        for replica in (*quorum.voters, *quorum.observers):
            broker = self.brokers.get(replica.id)
            if broker is not None:
                fetched_ms = replica.last_fetch_ms
                self.brokers[replica.id] = replace(broker, last_metadata_fetch_ms=fetched_ms)


def is_denied(error: KafkaError) -> bool:
    return error.code.name.endswith("AUTHORIZATION_FAILED")


def described(error: KafkaError) -> str:
    """Return the message and, of an authorization that failed, the name of the code."""
    if is_denied(error):
        return f"{error.code.name}: {error.message}"
    return error.message


def is_reached(broker: Broker) -> bool:
    return broker.probe is not None and broker.probe.reach == "kafka"


def new_client(world: World, bootstrap: str) -> Client:
    """Return a client with its own connections: a request that is not answered closes its
    connection, with all other requests on it."""
    return Client(
        world, bootstrap, client_id=CLIENT_ID, request_timeout_s=REQUEST_S, api_timeout_s=LOOK_S
    )
