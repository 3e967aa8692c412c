"""Registration, unfencing, and producer ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.controller.brokers import register_broker, unfence_broker
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, Endpoint, MetadataImage, PartitionState
from penstock.metadata.snapshot import partition_record
from penstock.protocol.internal.metadata_nodes import ProducerIdsRecord
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest
from tests.controller.clusters import after, broker, cluster, directory

A = UUID(int=1_001)


def registration(broker_id: int = 1, life: int = 700, directories: tuple[UUID, ...] = (), version: int = 30) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=UUID(int=life),
        listeners=(BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092),),
        features=(BrokerRegistrationRequest.Feature(name="metadata.version", min_supported_version=7, max_supported_version=version),),
        rack="r",
        log_dirs=directories or (directory(broker_id),),
    )


def test_a_broker_comes_in_fenced_with_what_it_says_of_itself() -> None:
    decision = register_broker(MetadataImage.empty(), registration(), cluster_id="c")
    known = after(MetadataImage.empty(), decision).brokers[1]
    assert (known.fenced, known.rack, known.directories) == (True, "r", (directory(1),))
    assert known.endpoints == (Endpoint("PLAINTEXT", "h", 9092, 0),)
    assert known.epoch == decision.response.broker_epoch == 0


def test_a_new_life_gets_a_higher_epoch_and_the_same_life_keeps_its_own() -> None:
    image = cluster(broker(1))
    assert register_broker(image, registration()).response.broker_epoch == image.offset + 1
    amended = register_broker(image, registration(life=501))
    assert amended.response.broker_epoch == image.brokers[1].epoch
    assert not after(image, amended).brokers[1].fenced


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (registration(directories=(UUID(int=5),)), ErrorCode.INVALID_REGISTRATION, "Reserved directory ID"),
        (registration(directories=(directory(1), directory(1))), ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID"),
        (registration(directories=(directory(2),)), ErrorCode.INVALID_REGISTRATION, "Broker 2 is already registered with directory"),
        (BrokerRegistrationRequest(broker_id=1, cluster_id="c"), ErrorCode.INVALID_REGISTRATION, "No directories"),
        (BrokerRegistrationRequest(broker_id=1, cluster_id="d"), ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID c"),
        (registration(version=29), ErrorCode.UNSUPPORTED_VERSION, "finalized version 30 of metadata.version"),
    ],
)
def test_registrations_that_are_refused(request_: BrokerRegistrationRequest, code: ErrorCode, said: str) -> None:
    image = cluster(broker(2)).replay([FeatureLevelRecord(name="metadata.version", feature_level=30)], 10)[0]
    with pytest.raises(KafkaError, match=said) as refused:
        register_broker(image, request_, cluster_id="c")
    assert refused.value.code == code


def unfenced(state: PartitionState) -> PartitionState:
    """The one partition of a topic, after broker 1 came back."""
    image = cluster(broker(1, fenced=True)).replay([TopicRecord(name="a", topic_id=A), partition_record(A, 0, state)], 20)[0]
    now = after(image, unfence_broker(image, 1))
    assert not now.brokers[1].fenced
    return now.topics["a"].partitions[0]


def test_a_broker_that_comes_back_leads_again_in_a_new_epoch() -> None:
    state = unfenced(PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=4, partition_epoch=6, directories=(A,)))
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 5, 7)


def test_an_eligible_replica_leads_where_nobody_is_in_sync() -> None:
    """As Kafka leaves a partition after a clean shutdown of its only broker."""
    gone = PartitionState(replicas=(1,), isr=(), leader=NO_LEADER, directories=(A,), eligible_leader_replicas=(1,), last_known_elr=(1,))
    state = unfenced(gone)
    assert (state.leader, state.isr, state.eligible_leader_replicas, state.last_known_elr) == (1, (1,), (), ())


def test_the_last_leader_leads_where_nobody_is_eligible() -> None:
    assert unfenced(PartitionState(replicas=(1,), isr=(), leader=NO_LEADER, directories=(A,), last_known_elr=(1,))).leader == 1


def test_a_broker_that_may_be_behind_does_not_lead() -> None:
    behind = PartitionState(replicas=(1, 2), isr=(2,), leader=NO_LEADER, directories=(A, A))
    assert unfenced(behind) == behind


def test_unfencing_twice_is_nothing_and_strangers_are_refused() -> None:
    assert unfence_broker(cluster(broker(1)), 1).records == ()
    with pytest.raises(KafkaError, match="BROKER_ID_NOT_REGISTERED"):
        unfence_broker(cluster(broker(1)), 2)


def test_blocks_of_producer_ids_follow_each_other() -> None:
    image = cluster(broker(1))
    first = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=101))
    assert first.records == (ProducerIdsRecord(broker_id=1, broker_epoch=101, next_producer_id=1_000),)
    assert (first.response.producer_id_start, first.response.producer_id_len) == (0, 1_000)
    second = allocate_producer_ids(after(image, first), AllocateProducerIdsRequest(broker_id=1, broker_epoch=101))
    assert second.response.producer_id_start == 1_000


def test_producer_ids_are_for_registered_brokers_alone_and_end() -> None:
    image = cluster(broker(1))
    stale = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=100))
    unknown = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=2, broker_epoch=101))
    assert stale.response.error_code == unknown.response.error_code == ErrorCode.STALE_BROKER_EPOCH
    spent = image.replay([ProducerIdsRecord(next_producer_id=2**63 - 1)], 20)[0]
    none_left = allocate_producer_ids(spent, AllocateProducerIdsRequest(broker_id=1, broker_epoch=101))
    assert (none_left.records, none_left.response.error_code) == ((), ErrorCode.UNKNOWN_SERVER_ERROR)
