"""Replays records on an image: the next image, and the delta between them. PURE.

Each part of the image has its delta: `topics_delta`, `cluster_delta`, `configs_delta`,
`acls_delta`, `scram_delta`, `delegation_tokens_delta`, `client_quotas_delta`, `opaque_delta`. This
module dispatches records to them and handles metadata transactions (KIP-868). A record that does
not fit the image is a broken invariant: this software or Apache Kafka wrote the log, and continuing
would spread the damage.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import InvariantBroken, invariant
from penstock.metadata.acls_delta import AclsDelta
from penstock.metadata.client_quotas_delta import ClientQuotasDelta
from penstock.metadata.cluster_delta import ClusterDelta
from penstock.metadata.configs_delta import ConfigurationsDelta, FeaturesDelta
from penstock.metadata.delegation_tokens_delta import DelegationTokensDelta
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.metadata.opaque_delta import OpaqueRecordsDelta
from penstock.metadata.scram_delta import ScramDelta
from penstock.metadata.topics_delta import TopicsDelta
from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.protocol.internal.metadata_settings import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from penstock.protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def replay(
    image: MetadataImage, records: Iterable[object], offset: int
) -> tuple[MetadataImage, MetadataDelta]:
    """`offset` is that of the last record."""
    invariant(
        offset >= image.offset,
        f"metadata was replayed up to offset {image.offset}, and now up to the earlier {offset}",
    )
    run = Replay(image)
    for record in records:
        run.replay(record)
    return run.finish(offset)


class Replay:
    """The deltas of one replay. A snapshot is replayed in parts, of which only the last one makes
    an image: each image takes time and memory in proportion to its number of topics."""

    def __init__(self, image: MetadataImage) -> None:
        self._topics = TopicsDelta(image)
        self._cluster = ClusterDelta(image)
        self._configs = ConfigurationsDelta(image)
        self._features = FeaturesDelta(image)
        self._acls = AclsDelta(image)
        self._scram = ScramDelta(image)
        self._tokens = DelegationTokensDelta(image)
        self._quotas = ClientQuotasDelta(image)
        self._opaque = OpaqueRecordsDelta(image)
        self._next_producer_id = image.next_producer_id
        # Records of the open transaction; None outside of one.
        self._transaction = None if image.open_transaction is None else [*image.open_transaction]

    def replay(self, record: object) -> None:
        """Apply a record. In a transaction, hold it back until the transaction ends."""
        match record:
            case BeginTransactionRecord():
                invariant(
                    self._transaction is None,
                    f"metadata transaction {record.name} begins within another",
                )
                self._transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                transaction, self._transaction = self._transaction, None
                if transaction is None:
                    raise InvariantBroken(f"{type(record).__name__} without a metadata transaction")
                if isinstance(record, EndTransactionRecord):
                    for held in transaction:
                        self._apply(held)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: object) -> None:
        # Partitions first: they are by far the most numerous.
        match record:
            case PartitionChangeRecord():
                self._topics.replay_partition_change(record)
            case PartitionRecord():
                self._topics.replay_partition(record)
            case TopicRecord():
                self._topics.replay_topic(record)
            case RemoveTopicRecord():
                self._configs.delete_topic(self._topics.replay_remove_topic(record))
            case ClearElrRecord():
                self._topics.replay_clear_elr(record)
            case ConfigRecord():
                self._configs.replay_config(record)
            case FeatureLevelRecord():
                self._features.replay_feature_level(record)
            case RegisterBrokerRecord():
                self._cluster.replay_register_broker(record)
            case UnregisterBrokerRecord():
                self._cluster.replay_unregister_broker(record)
            case FenceBrokerRecord():
                self._cluster.replay_fence_broker(record)
            case UnfenceBrokerRecord():
                self._cluster.replay_unfence_broker(record)
            case BrokerRegistrationChangeRecord():
                self._cluster.replay_registration_change(record)
            case RegisterControllerRecord():
                self._cluster.replay_register_controller(record)
            case ProducerIdsRecord():
                self._replay_producer_ids(record)
            case AccessControlEntryRecord():
                self._acls.replay_entry(record)
            case RemoveAccessControlEntryRecord():
                self._acls.replay_remove_entry(record)
            case UserScramCredentialRecord():
                self._scram.replay_credential(record)
            case RemoveUserScramCredentialRecord():
                self._scram.replay_remove_credential(record)
            case DelegationTokenRecord():
                self._tokens.replay_token(record)
            case RemoveDelegationTokenRecord():
                self._tokens.replay_remove_token(record)
            case ClientQuotaRecord():
                self._quotas.replay_quota(record)
            case NoOpRecord():
                pass
            case _:
                if not self._opaque.replay(record):
                    raise InvariantBroken(f"{type(record).__name__} is not a metadata record")

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        before, after = self._next_producer_id, record.next_producer_id
        invariant(
            after > before or before == after == 0,
            f"ProducerIdsRecord sets the next producer id from {before} back to {after}",
        )
        self._next_producer_id = after

    def finish(self, offset: int) -> tuple[MetadataImage, MetadataDelta]:
        self._topics.sort_partitions()
        image = MetadataImage(
            offset=offset,
            topics=self._topics.settled_topics(),
            topic_names=self._topics.settled_names(),
            brokers=self._cluster.brokers,
            configs=self._configs.settled_configs(),
            features=self._features.features,
            next_producer_id=self._next_producer_id,
            controllers=self._cluster.controllers,
            acls=self._acls.settled_acls(),
            acl_ids=self._acls.settled_ids(),
            scram_credentials=self._scram.settled_credentials(),
            scram_shapes=self._scram.shapes,
            delegation_tokens=self._tokens.settled_tokens(),
            client_quotas=self._quotas.settled_quotas(),
            opaque_records=self._opaque.records,
            open_transaction=None if self._transaction is None else tuple(self._transaction),
        )
        return image, MetadataDelta(
            self._topics.changes(image),
            frozenset(self._configs.changed_resources),
            frozenset(self._cluster.changed_brokers),
            self._topics.changed_partitions(),
            self._acls.changes,
            self._quotas.changed_entities(),
        )
