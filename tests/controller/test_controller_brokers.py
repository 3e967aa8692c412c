"""BrokerRegistration and AllocateProducerIds."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.controller.brokers.registration import register_broker
from penstock.controller.decision import ControllerResult
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, Endpoint, MetadataImage
from penstock.protocol.internal.metadata_nodes import ProducerIdsRecord, RegisterBrokerRecord
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tests.controller.clusters import (
    after,
    broker,
    cluster,
    context,
    directory,
    partition,
    running,
    state_of,
    with_topic,
)

Feature = BrokerRegistrationRequest.Feature


def registration(
    broker_id: int = 1,
    life: int = 700,
    directories: tuple[UUID, ...] = (),
    previous_epoch: int = -1,
    features: tuple[Feature, ...] | None = None,
) -> BrokerRegistrationRequest:
    supported = tuple(
        Feature(
            name=feature.name,
            min_supported_version=feature.first,
            max_supported_version=feature.last,
        )
        for feature in SUPPORTED_FEATURES
    )
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=UUID(int=life),
        listeners=(BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="h", port=9092),),
        features=supported if features is None else features,
        rack="r",
        log_dirs=directories or (directory(broker_id),),
        previous_broker_epoch=previous_epoch,
    )


def register(
    image: MetadataImage, request: BrokerRegistrationRequest, *alive: int
) -> ControllerResult[BrokerRegistrationResponse]:
    return register_broker(
        image, request, context(), cluster_id="c", has_session=alive.__contains__
    )


def test_broker_is_registered_as_fenced() -> None:
    decision = register(MetadataImage.empty(), registration())
    known = after(MetadataImage.empty(), decision).brokers[1]
    assert (known.fenced, known.rack, known.directories) == (True, "r", (directory(1),))
    assert known.endpoints == (Endpoint("PLAINTEXT", "h", 9092, 0),)
    assert known.features == SUPPORTED_FEATURES
    assert known.epoch == decision.response.broker_epoch == 0


def test_new_incarnation_gets_a_higher_epoch_and_the_same_one_keeps_its_epoch() -> None:
    image = running(broker(1))
    assert register(image, registration()).response.broker_epoch == image.offset + 1
    amended = register(image, registration(life=501), 1)
    assert amended.response.broker_epoch == image.brokers[1].epoch
    assert not after(image, amended).brokers[1].fenced


def test_broker_epoch_is_the_offset_of_the_registration() -> None:
    """So a broker that has applied the metadata up to its epoch has seen its registration."""
    image = with_topic(running(broker(1), broker(2)), partition(1, 2), partition(2, 1))
    decision = register(image, registration())
    assert isinstance(decision.records[-1], RegisterBrokerRecord)
    assert (
        decision.response.broker_epoch == image.offset + len(decision.records) == image.offset + 3
    )


def test_second_incarnation_is_refused_while_the_first_has_a_session() -> None:
    with pytest.raises(
        KafkaError, match="Another broker is registered with that broker id"
    ) as refused:
        register(running(broker(1)), registration(), 1)
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert register(running(broker(1)), registration()).records
    assert register(running(broker(1, fenced=True)), registration(), 1).records


def test_unclean_shutdown_removes_the_broker_from_isr_and_elr() -> None:
    """KIP-966: the broker may have lost acknowledged records."""
    image = with_topic(
        running(broker(1), broker(2)),
        partition(1, 2),
        partition(1, 2, isr=(2,), eligible_leader_replicas=(1,)),
        min_insync_replicas="2",
    )
    for previous_epoch in (-1, 100):
        now = after(image, register(image, registration(previous_epoch=previous_epoch)))
        for index in (0, 1):
            state = state_of(now, index)
            assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), ())


def test_broker_with_its_previous_epoch_stays_eligible() -> None:
    image = with_topic(
        running(broker(1), broker(2)),
        partition(1, 2),
        partition(1, 2, isr=(2,), eligible_leader_replicas=(1,)),
        min_insync_replicas="2",
    )
    now = after(image, register(image, registration(previous_epoch=image.brokers[1].epoch)))
    for index in (0, 1):
        state = state_of(now, index)
        assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), (1,))


def test_partitions_of_the_only_broker_are_offline_until_it_is_unfenced() -> None:
    image = with_topic(running(broker(1)), partition(1))
    state = state_of(after(image, register(image, registration())))
    assert (state.leader, state.isr, state.eligible_leader_replicas, state.last_known_elr) == (
        NO_LEADER,
        (),
        (),
        (1,),
    )


def test_a_cordon_outlives_a_new_incarnation_in_the_directories_that_remain() -> None:
    """No replica is placed on a cordoned broker because it restarts; it reports its cordon again
    with its heartbeats."""
    image = cluster(
        replace(broker(1, directories=2), cordoned_directories=(directory(1, 0), directory(1, 1)))
    )
    restarted = after(image, register(image, registration(1, directories=(directory(1, 1),))))
    assert restarted.brokers[1].directories == (directory(1, 1),)
    assert restarted.brokers[1].cordoned_directories == (directory(1, 1),)


def test_registration_of_the_same_incarnation_changes_no_partition() -> None:
    image = with_topic(running(broker(1), broker(2)), partition(1, 2))
    assert len(register(image, registration(life=501)).records) == 1


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (
            registration(directories=(UUID(int=5),)),
            ErrorCode.INVALID_REGISTRATION,
            "Reserved directory ID",
        ),
        (
            registration(directories=(directory(1), directory(1))),
            ErrorCode.INVALID_REGISTRATION,
            "Duplicate directory ID",
        ),
        (
            registration(directories=(directory(2),)),
            ErrorCode.INVALID_REGISTRATION,
            "Broker 2 is already registered with directory",
        ),
        (
            BrokerRegistrationRequest(broker_id=1, cluster_id="c"),
            ErrorCode.INVALID_REGISTRATION,
            "No directories",
        ),
        (
            registration(features=()),
            ErrorCode.INVALID_REGISTRATION,
            "do not contain 'metadata.version'",
        ),
        (
            BrokerRegistrationRequest(broker_id=1, cluster_id="d"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            "Expected cluster ID c",
        ),
        (
            registration(
                features=(
                    Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=29
                    ),
                )
            ),
            ErrorCode.UNSUPPORTED_VERSION,
            (
                "finalized version 30 of metadata.version. The broker wants a version between 7 "
                "and "
                "29, inclusive."
            ),
        ),
        (
            registration(
                features=(
                    Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=30
                    ),
                )
            ),
            ErrorCode.UNSUPPORTED_VERSION,
            (
                "finalized version 1 of eligible.leader.replicas.version. The broker wants a "
                "version "
                "between 0 and 0, inclusive."
            ),
        ),
    ],
)
def test_invalid_registrations(
    request_: BrokerRegistrationRequest, code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        register(running(broker(2)), request_)
    assert refused.value.code == code


def test_producer_id_blocks_are_consecutive() -> None:
    image = cluster(broker(1))
    first = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=101))
    assert first.records == (
        ProducerIdsRecord(broker_id=1, broker_epoch=101, next_producer_id=1_000),
    )
    assert (first.response.producer_id_start, first.response.producer_id_len) == (0, 1_000)
    second = allocate_producer_ids(
        after(image, first), AllocateProducerIdsRequest(broker_id=1, broker_epoch=101)
    )
    assert second.response.producer_id_start == 1_000


def test_producer_ids_need_a_registered_broker_and_are_finite() -> None:
    image = cluster(broker(1))
    stale = allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=100))
    unknown = allocate_producer_ids(
        image, AllocateProducerIdsRequest(broker_id=2, broker_epoch=101)
    )
    assert stale.response.error_code == unknown.response.error_code == ErrorCode.STALE_BROKER_EPOCH
    spent = image.replay([ProducerIdsRecord(next_producer_id=2**63 - 1)], 20)[0]
    none_left = allocate_producer_ids(
        spent, AllocateProducerIdsRequest(broker_id=1, broker_epoch=101)
    )
    assert (none_left.records, none_left.response.error_code) == (
        (),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
