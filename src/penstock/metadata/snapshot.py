"""Makes the records of a snapshot from an image, in Kafka's order: feature levels first, since they
determine the format of the rest. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from penstock.metadata.acls_delta import acl_record
from penstock.metadata.client_quotas_delta import quota_records
from penstock.metadata.delegation_tokens_delta import token_records
from penstock.metadata.image import (
    METADATA_VERSION,
    BrokerImage,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.metadata.scram_delta import credential_records
from penstock.protocol.internal.metadata_nodes import ProducerIdsRecord, RegisterBrokerRecord
from penstock.protocol.internal.metadata_settings import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
)
from penstock.protocol.internal.metadata_topics import PartitionRecord, TopicRecord


def snapshot_records(image: MetadataImage) -> Iterator[object]:
    yield from _features(image)
    yield from image.controllers.values()
    yield from map(register_broker_record, image.brokers.values())
    for topic in image.topics.values():
        yield from _topic(topic)
    yield from _configs(image)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    yield from credential_records(image)
    yield from token_records(image)
    yield from quota_records(image)
    yield from image.opaque_records.values()
    if image.open_transaction is not None:
        yield BeginTransactionRecord()
        yield from image.open_transaction


def _features(image: MetadataImage) -> Iterator[FeatureLevelRecord]:
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def register_broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=tuple(
            RegisterBrokerRecord.EndPoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in broker.endpoints
        ),
        features=tuple(
            RegisterBrokerRecord.Feature(
                name=feature.name,
                min_supported_version=feature.first,
                max_supported_version=feature.last,
            )
            for feature in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories,
        cordoned_log_dirs=broker.cordoned_directories or None,
    )


def _topic(topic: TopicImage) -> Iterator[object]:
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for index, state in topic.partitions.items():
        yield partition_record(topic.id, index, state)


def partition_record(topic_id: UUID, index: int, state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        removing_replicas=state.removing_replicas,
        adding_replicas=state.adding_replicas,
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories,
        eligible_leader_replicas=state.eligible_leader_replicas or None,
        last_known_elr=state.last_known_elr or None,
    )


def _configs(image: MetadataImage) -> Iterator[ConfigRecord]:
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
