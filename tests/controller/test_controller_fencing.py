"""Fencing, unfencing and unregistration: the effect on partitions."""

from __future__ import annotations

import pytest

from penstock.controller.brokers.fencing import (
    begin_controlled_shutdown,
    fence_broker,
    leave_isrs,
    unfence_broker,
    unregister_broker,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import NO_LEADER, MetadataImage
from penstock.protocol.internal.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import (
    after,
    broker,
    cluster,
    context,
    partition,
    running,
    state_of,
    with_topic,
)


def three(*fenced: int) -> MetadataImage:
    return running(*(broker(index, fenced=index in fenced) for index in (1, 2, 3)))


def fenced(image: MetadataImage, *broker_ids: int, **settings: str) -> MetadataImage:
    """Return the image after these brokers were fenced, in this order."""
    for broker_id in broker_ids:
        image = after(image, fence_broker(image, broker_id, context(**settings)))
    return image


def unfenced(image: MetadataImage, broker_id: int, **settings: str) -> MetadataImage:
    return after(image, unfence_broker(image, broker_id, context(**settings)))


def test_next_in_sync_replica_is_elected_when_the_leader_is_fenced() -> None:
    image = fenced(
        with_topic(three(), partition(1, 2, 3), partition(2, 3, 1), partition(3, 1, 2, isr=(3, 2))),
        1,
    )
    assert image.brokers[1].fenced
    states = [state_of(image, index) for index in range(3)]
    assert [(state.leader, state.isr) for state in states] == [
        (2, (2, 3)),
        (2, (2, 3)),
        (3, (3, 2)),
    ]
    assert [(state.leader_epoch, state.partition_epoch) for state in states] == [
        (1, 1),
        (0, 1),
        (0, 0),
    ]


def test_partition_records_precede_the_fencing_record() -> None:
    decision = fence_broker(with_topic(three(), partition(1, 2, 3)), 1, context())
    assert decision.records[-1] == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=101, fenced=1
    )
    assert len(decision.records) == 2


def test_leaving_isrs_in_parts_before_the_fencing_has_the_same_result() -> None:
    image = with_topic(
        three(),
        partition(1, 2, 3),
        partition(2, 3, 1),
        partition(3, 1, 2, isr=(3, 2)),
        partition(1, 2, isr=(1,)),
    )
    expected = fenced(image, 1)
    (topic,) = image.topics.values()
    parts = [[(topic.id, 0), (topic.id, 3)], [(topic.id, 1), (topic.id, 2), (topic.id, 99)]]
    for some in parts:
        image = after(image, leave_isrs(image, 1, some, context()))
        assert not image.brokers[1].fenced
    rest = fence_broker(image, 1, context())
    assert len(rest.records) == 1
    assert after(image, rest).topics == expected.topics


def test_fencing_twice_writes_no_record_and_unknown_brokers_are_refused() -> None:
    assert fence_broker(three(1), 1, context()).records == ()
    assert unfence_broker(three(), 1, context()).records == ()
    for decide in (fence_broker, unfence_broker):
        with pytest.raises(KafkaError, match="Broker ID 9 is not currently registered") as refused:
            decide(three(), 9, context())
        assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_last_isr_member_is_fenced_and_leads_again() -> None:
    """The partition is offline meanwhile, although another replica is alive but not in sync. There
    is no unclean election, and no record is lost."""
    gone = fenced(with_topic(three(), partition(1, 2, isr=(1,))), 1)
    assert state_of(gone).leader == NO_LEADER
    assert state_of(unfenced(fenced(gone, 2), 2)).leader == NO_LEADER
    state = state_of(unfenced(gone, 1))
    assert (state.leader, state.isr, state.leader_recovery_state) == (1, (1,), 0)


def test_broker_that_is_shutting_down_leads_nothing_when_it_is_unfenced() -> None:
    image = with_topic(three(), partition(1, isr=(1,)))
    leaving = after(image, begin_controlled_shutdown(image, 1, context()))
    back = unfenced(fenced(leaving, 1), 1)
    assert back.brokers[1].in_controlled_shutdown
    assert (state_of(back).leader, state_of(back).isr) == (NO_LEADER, ())


def test_eligible_replicas_lead_in_any_order_of_return() -> None:
    """Replication factor 3, min.insync.replicas 2: all three fail one after the other. The second
    may lead, since nothing was acknowledged after it failed."""
    gone = fenced(with_topic(three(), partition(1, 2, 3), min_insync_replicas="2"), 3, 2, 1)
    state = state_of(gone)
    assert (state.isr, state.eligible_leader_replicas, state.last_known_elr) == ((), (1, 2), (1,))
    assert state_of(unfenced(gone, 3)).leader == NO_LEADER
    back = unfenced(unfenced(gone, 3), 2)
    assert (state_of(back).leader, state_of(back).isr, state_of(back).eligible_leader_replicas) == (
        2,
        (2,),
        (1,),
    )


def test_unclean_election_by_topic_and_cluster_setting() -> None:
    decision = fence_broker(
        with_topic(three(), partition(1, 2, isr=(1,)), unclean_leader_election_enable="true"),
        1,
        context(),
    )
    assert len(decision.warnings) == 1
    assert "unclean" in decision.warnings[0]
    image = with_topic(three(), partition(1, 2, isr=(1,)))
    state = state_of(fenced(image, 1, unclean_leader_election_enable="true"))
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)
    spared = with_topic(three(), partition(1, 2, isr=(1,)), unclean_leader_election_enable="false")
    assert state_of(fenced(spared, 1, unclean_leader_election_enable="true")).leader == NO_LEADER


def test_min_insync_is_capped_at_the_replication_factor() -> None:
    image = with_topic(three(), partition(1, 2), min_insync_replicas="3")
    assert state_of(fenced(image, 1)).eligible_leader_replicas == (1,)
    alone = with_topic(three(), partition(1), min_insync_replicas="3")
    assert state_of(fenced(alone, 1)).eligible_leader_replicas == (1,)


def test_without_elr_no_replica_is_eligible() -> None:
    image = with_topic(cluster(broker(1), broker(2)), partition(1, 2))
    state = state_of(fenced(image, 1, min_insync_replicas="2"))
    assert (state.leader, state.isr, state.eligible_leader_replicas) == (2, (2,), ())
    assert state_of(fenced(image, 1, 2)).isr == (2,)
    assert state_of(unfenced(fenced(image, 1, 2), 1)).leader == NO_LEADER
    assert state_of(unfenced(fenced(image, 1, 2), 2)).leader == 2


def test_unfencing_record_precedes_partition_records_and_moves_no_leader() -> None:
    image = with_topic(
        three(1), partition(1, isr=(), last_known_elr=(1,)), partition(1, 2, 3, isr=(2, 3))
    )
    decision = unfence_broker(image, 1, context())
    assert decision.records[0] == BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=101, fenced=-1
    )
    assert len(decision.records) == 2
    assert "last known leader" in decision.warnings[0]
    assert state_of(after(image, decision), 1).leader == 2


def test_unregistered_broker_leaves_its_isrs_and_the_image() -> None:
    image = with_topic(three(), partition(1, 2, 3))
    decision = unregister_broker(image, UnregisterBrokerRequest(broker_id=1), context())
    assert decision.records[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=101)
    now = after(image, decision)
    assert 1 not in now.brokers
    assert (state_of(now).leader, state_of(now).isr, state_of(now).replicas) == (
        2,
        (2, 3),
        (1, 2, 3),
    )


def test_unregistering_an_unknown_broker_is_an_error() -> None:
    decision = unregister_broker(three(), UnregisterBrokerRequest(broker_id=9), context())
    assert decision.records == ()
    assert decision.response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert decision.response.error_message == "Broker ID 9 is not currently registered"


def test_every_prefix_of_the_records_leaves_no_fenced_leader() -> None:
    """They may be divided into several batches, of which the last ones are lost."""
    before = with_topic(three(), *(partition(1, 2, 3) for _ in range(5)))
    for decision, image in (
        (fence_broker(before, 1, context()), before),
        (unfence_broker(fenced(before, 3, 2, 1), 2, context()), fenced(before, 3, 2, 1)),
    ):
        assert not decision.is_atomic
        for record in decision.records:
            image = image.replay((record,), image.offset + 1)[0]
            leaders = {state.leader for state in image.topics["t"].partitions.values()}
            assert not any(image.brokers[leader].fenced for leader in leaders - {NO_LEADER})
