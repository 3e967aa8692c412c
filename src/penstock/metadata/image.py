"""The image of the cluster, one immutable value: topics, brokers, settings, features, producer ids.
PURE.

`replay` makes the next image from records, `snapshot` makes records from an image. Images share the
parts that did not change.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from penstock.limits import COMPARED_PARTITIONS_PER_STEP, COMPARED_PARTITIONS_PER_TOPIC
from penstock.protocol.internal.metadata_nodes import RegisterControllerRecord
from penstock.security.acls import Acl
from penstock.security.delegation_tokens import DelegationToken
from penstock.security.quotas.entities import QuotaEntity
from penstock.security.sasl.scram_credential import (
    ScramCredential,
    ScramCredentialKey,
    ScramShape,
)

# Types of config resources; the protocol's numbers.
TOPIC = 2
BROKER = 4
GROUP = 32

NO_LEADER = -1

# The feature that says which records the metadata log may contain.
METADATA_VERSION = "metadata.version"

# Reserved directory ids of a replica (KIP-858).
MIGRATING_DIRECTORY = UUID(int=0)
UNASSIGNED_DIRECTORY = UUID(int=1)
LOST_DIRECTORY = UUID(int=2)

K = TypeVar("K")

# Type and name. The name "" of type BROKER is the cluster-wide default.
ConfigResource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. `directories` has the log directory id of each replica."""

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
    """One topic. Its partitions are ordered by index."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker's listener. `security_protocol` is Kafka's number: PLAINTEXT is
    0."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels of a feature that a broker supports."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. A fenced broker leads no partition and is in no ISR."""

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
        """True if the broker may lead: neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The difference between two images.

    `topics` maps topic ids to the topic before and after, None where it does not exist. A topic
    that was deleted and created again is two entries, since its id differs. `partitions` has the
    indexes of the partitions that were added or changed, of the topics that exist: a topic may have
    thousands. `configs` and `brokers` name the resources and brokers that changed. `acls` maps the
    ids of access control entries to the entry before and after. `client_quotas` names the entities
    whose quotas changed.
    """

    topics: Mapping[UUID, tuple[TopicImage | None, TopicImage | None]] = field(default_factory=dict)
    configs: frozenset[ConfigResource] = frozenset()
    brokers: frozenset[int] = frozenset()
    partitions: Mapping[UUID, Sequence[int]] = field(default_factory=dict)
    acls: Mapping[UUID, tuple[Acl | None, Acl | None]] = field(default_factory=dict)
    client_quotas: frozenset[QuotaEntity] = frozenset()


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster after the record at `offset`; -1 before the first record."""

    offset: int = -1
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    # Access control entries by id, and their ids.
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    acl_ids: Mapping[Acl, UUID] = field(default_factory=dict)
    scram_credentials: Mapping[ScramCredentialKey, ScramCredential] = field(default_factory=dict)
    # By number of the mechanism: how many credentials have a shape.
    scram_shapes: Mapping[int, Mapping[ScramShape, int]] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    # Quotas by key, of each entity that has some.
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    # Records by key that no part reads, but that snapshots must retain.
    opaque_records: Mapping[tuple[object, ...], object] = field(default_factory=dict)
    # Records of the open metadata transaction (KIP-868); None outside of one.
    open_transaction: tuple[object, ...] | None = None

    @staticmethod
    def empty() -> MetadataImage:
        return MetadataImage()

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings of the topic itself, as text."""
        return self.configs.get((TOPIC, name), {})

    def replay(self, records: Iterable[object], offset: int) -> tuple[MetadataImage, MetadataDelta]:
        """Return the image after these records, and the delta. The last record is at `offset`; it
        advances without records for control batches."""
        # Imported here: `replay` imports this module.
        from penstock.metadata.replay import replay

        return replay(self, records, offset)

    def records(self) -> Iterator[object]:
        """Yield the records of a snapshot: replaying them on the empty image gives this one."""
        from penstock.metadata.snapshot import snapshot_records

        return snapshot_records(self)


def delta_steps(
    before: MetadataImage, after: MetadataImage
) -> Generator[None, None, MetadataDelta]:
    """Compare two images in steps of bounded length: yields between them, and returns the delta."""
    topics: dict[UUID, tuple[TopicImage | None, TopicImage | None]] = {}
    partitions: dict[UUID, list[int]] = {}
    compared = 0
    for topic_id in _keys(before.topic_names, after.topic_names):
        old, new = before.topic_by_id(topic_id), after.topic_by_id(topic_id)
        changed: list[int] = []
        if new is not None and new is not old:
            known = {} if old is None else old.partitions
            for index, state in new.partitions.items():
                if known.get(index) != state:
                    changed.append(index)
                compared += 1
                if compared >= COMPARED_PARTITIONS_PER_STEP:
                    compared = 0
                    yield
        if changed or not _is_same(old, new):
            topics[topic_id] = old, new
            if new is not None:
                partitions[topic_id] = changed
        compared += COMPARED_PARTITIONS_PER_TOPIC
        if compared >= COMPARED_PARTITIONS_PER_STEP:
            compared = 0
            yield
    configs = yield from _changed_keys(before.configs, after.configs)
    brokers = yield from _changed_keys(before.brokers, after.brokers)
    acl_ids = yield from _changed_keys(before.acls, after.acls)
    acls: dict[UUID, tuple[Acl | None, Acl | None]] = {}
    for count, acl_id in enumerate(acl_ids, 1):
        acls[acl_id] = before.acls.get(acl_id), after.acls.get(acl_id)
        if count % COMPARED_PARTITIONS_PER_STEP == 0:
            yield
    quotas = yield from _changed_keys(before.client_quotas, after.client_quotas)
    return MetadataDelta(topics, configs, brokers, partitions, acls, quotas)


def _is_same(before: TopicImage | None, after: TopicImage | None) -> bool:
    """Return True if a topic is the same, but for partitions that were added or changed."""
    if before is None or after is None:
        return before is after
    return before.name == after.name and len(before.partitions) == len(after.partitions)


def _keys(before: Mapping[K, object], after: Mapping[K, object]) -> Iterator[K]:
    """Yield each key of two maps once."""
    yield from before
    yield from (key for key in after if key not in before)


def _changed_keys(
    before: Mapping[K, object], after: Mapping[K, object]
) -> Generator[None, None, frozenset[K]]:
    changed = []
    for count, key in enumerate(_keys(before, after), 1):
        if before.get(key) != after.get(key):
            changed.append(key)
        if count % (COMPARED_PARTITIONS_PER_STEP // COMPARED_PARTITIONS_PER_TOPIC) == 0:
            yield
    return frozenset(changed)
