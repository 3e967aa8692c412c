"""What the cluster is, as one immutable value: topics, brokers, settings, features, producer ids.
PURE.

Owns the shape of it. `replay` makes a new image from records, `snapshot` makes records from an
image. Never knows where records come from. Images share what did not change; nothing in one is ever
changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from penstock.protocol.internal.metadata_nodes import RegisterControllerRecord

# Kinds of resources that have settings; the numbers are the protocol's.
TOPIC = 2
BROKER = 4
GROUP = 32

NO_LEADER = -1

# Directories of a replica that say something else than where it is (KIP-858).
MIGRATING_DIRECTORY = UUID(int=0)
UNASSIGNED_DIRECTORY = UUID(int=1)
LOST_DIRECTORY = UUID(int=2)

ConfigResource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. `directories` says for each replica where it lies."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic, with its partitions in order: 0 to n - 1."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is reached by one of its listeners. The numbers of security protocols are
    Kafka's: PLAINTEXT is 0."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels of a feature that a broker can work with."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. A fenced one is known, but leads nothing and is given nothing."""

    id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directories: tuple[UUID, ...] = ()
    cordoned_directories: tuple[UUID, ...] = ()
    features: tuple[SupportedFeature, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead: it is up, and means to stay."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """What a few records changed: topics before and after (None: not there) by id, and whose
    settings and registrations changed.

    A topic that was deleted and made again is two topics here: names come back, ids never do.
    """

    topics: Mapping[UUID, tuple[TopicImage | None, TopicImage | None]] = field(default_factory=dict)
    configs: frozenset[ConfigResource] = frozenset()
    brokers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster after the record at `offset` (-1: before the first)."""

    offset: int = -1
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    # Quotas, access rules and credentials: nothing here reads them yet, but a snapshot must not
    # lose them. By what tells them apart.
    kept: Mapping[tuple[object, ...], object] = field(default_factory=dict)
    # Records of a transaction that has begun and not ended (KIP-868); None outside of one.
    open_transaction: tuple[object, ...] | None = None

    @staticmethod
    def empty() -> MetadataImage:
        return MetadataImage()

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The topic's own settings, as text."""
        return self.configs.get((TOPIC, name), {})

    def replay(self, records: Iterable[object], offset: int) -> tuple[MetadataImage, MetadataDelta]:
        """The image after these records, the last of which is at `offset`; control batches move the
        offset alone."""
        # The import is here because `replay` builds images, and so must know this file.
        from penstock.metadata.replay import replay

        return replay(self, records, offset)

    def records(self) -> Iterator[object]:
        """Records that make this image anew from the empty one, replayed up to its offset."""
        from penstock.metadata.snapshot import snapshot_records

        return snapshot_records(self)
