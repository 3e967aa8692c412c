"""Random histories of a cluster: brokers crash, shut down and restart, leaders propose ISRs,
elections are held. After every step the rules hold.

Each partition has a model: the acknowledged records, and the log of each broker. So rule 10 is
checked directly: an elected leader has every acknowledged record, unless the partition is marked as
recovering.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.controller.brokers.fencing import fence_broker, unregister_broker
from penstock.controller.brokers.heartbeat import HeartbeatTracker, broker_heartbeat
from penstock.controller.brokers.registration import register_broker
from penstock.controller.decision import ControllerResult
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.controller.partitions.change_builder import RECOVERING
from penstock.controller.partitions.elections import (
    elect_leaders,
    elect_unclean_leaders,
    rebalance_leaders,
)
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState
from penstock.protocol.messages.alter_partition import AlterPartitionRequest
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.controller.clusters import broker, context, directory, partition, running, with_topic

BROKERS = (1, 2, 3)
SAFE, WILD = UUID(int=901), UUID(int=902)
MIN_ISR = 2
PREFERRED, UNCLEAN = 0, 1

Proposal = AlterPartitionRequest.Topic.Partition
broker_ids = st.sampled_from(BROKERS)
partition_keys = st.sampled_from([(SAFE, 0), (SAFE, 1), (WILD, 0)])
Key = tuple[UUID, int]


@dataclass
class Model:
    """The logs of one partition: record ids, each written once."""

    logs: dict[int, list[int]] = field(
        default_factory=lambda: {broker_id: [] for broker_id in BROKERS}
    )
    acknowledged: set[int] = field(default_factory=set)


def initial_image() -> MetadataImage:
    image = running(*(broker(broker_id) for broker_id in BROKERS))
    image = with_topic(
        image,
        partition(1, 2, 3),
        partition(3, 1, 2),
        name="safe",
        topic_id=SAFE,
        min_insync_replicas=str(MIN_ISR),
    )
    image = with_topic(
        image, partition(2, 1), name="wild", topic_id=WILD, unclean_leader_election_enable="true"
    )
    # Above the epochs of the brokers: a new epoch is the offset of its registration.
    return replace(image, offset=1_000)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.context = context()
        self.heartbeats = HeartbeatTracker()
        self.image = initial_image()
        self.committed: list[object] = []
        self.models = {(SAFE, 0): Model(), (SAFE, 1): Model(), (WILD, 0): Model()}
        self.epochs = {broker_id: self.image.brokers[broker_id].epoch for broker_id in BROKERS}
        self.up = set(BROKERS)
        # The epoch in the clean shutdown file of each broker; -1 without one.
        self.clean_epochs = dict.fromkeys(BROKERS, -1)
        self.ids = iter(range(1_000_000))
        self.unclean_requested = False

    # Decisions

    def commit(self, decision: ControllerResult[Any]) -> None:
        before, self.image = (
            self.image,
            self.image.replay(decision.records, self.image.offset + len(decision.records))[0],
        )
        self.committed += decision.records
        for key, model in self.models.items():
            self.check_change(key, model, state(before, key), state(self.image, key))

    def check_change(
        self, key: Key, model: Model, old: PartitionState, new: PartitionState
    ) -> None:
        assert new.leader_epoch >= old.leader_epoch
        assert new.partition_epoch > old.partition_epoch or new == old
        if new.leader == old.leader:
            return
        assert new.leader_epoch > old.leader_epoch
        if new.leader == NO_LEADER:
            return
        if new.leader_recovery_state == RECOVERING and new.leader not in (
            *old.isr,
            *old.eligible_leader_replicas,
        ):
            assert old.last_known_elr == (new.leader,) or key[0] == WILD or self.unclean_requested
            model.acknowledged &= set(model.logs[new.leader])
        else:
            assert new.leader in (*old.isr, *old.eligible_leader_replicas)
        # A leader that crashed, which the controller does not know yet, serves nobody. When it
        # returns, its registration shows the crash, and it leaves the ISR.
        if new.leader in self.up:
            assert model.acknowledged <= set(model.logs[new.leader]), (
                f"{key}: the new leader {new.leader} lacks acknowledged records"
            )

    # Rules

    @rule(broker_id=broker_ids, loses=st.booleans())
    def crash(self, broker_id: int, loses: bool) -> None:
        """Kill a broker; with `loses`, unsynced records are lost too."""
        if broker_id in self.up:
            self.up.discard(broker_id)
            self.clean_epochs[broker_id] = -1
            for model in self.models.values():
                if loses and model.logs[broker_id]:
                    model.logs[broker_id].pop()

    @rule(broker_id=broker_ids, false_alarm=st.booleans())
    def fence(self, broker_id: int, false_alarm: bool) -> None:
        if broker_id in self.image.brokers and (false_alarm or broker_id not in self.up):
            self.heartbeats.forget(broker_id)
            self.commit(fence_broker(self.image, broker_id, self.context))

    @rule(broker_id=broker_ids)
    def restart(self, broker_id: int) -> None:
        if broker_id not in self.up:
            decision = register_broker(
                self.image,
                registration(broker_id, next(self.ids), self.clean_epochs[broker_id]),
                self.context,
                cluster_id="c",
                has_session=no_session,
            )
            self.commit(decision)
            self.epochs[broker_id] = decision.response.broker_epoch
            self.up.add(broker_id)
            assert self.image.brokers[broker_id].fenced

    @rule(broker_id=broker_ids, shuts_down=st.booleans(), behind=st.booleans())
    def heartbeat(self, broker_id: int, shuts_down: bool, behind: bool) -> None:
        if broker_id not in self.up or broker_id not in self.image.brokers:
            return
        applied = self.epochs[broker_id] - 1 if behind else self.image.offset
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=applied,
            want_shut_down=shuts_down,
        )
        decision = broker_heartbeat(self.image, request, self.context, self.heartbeats)
        self.commit(decision)
        assert self.image.brokers[broker_id].fenced == decision.response.is_fenced
        if decision.response.should_shut_down:
            self.up.discard(broker_id)
            self.clean_epochs[broker_id] = self.epochs[broker_id]

    @rule(broker_ids=st.lists(broker_ids, min_size=1, unique=True), loses=st.booleans())
    def crash_and_fence(self, broker_ids: list[int], loses: bool) -> None:
        for broker_id in broker_ids:
            self.crash(broker_id, loses)
            self.fence(broker_id, false_alarm=False)

    @rule(broker_id=broker_ids)
    def restart_and_unfence(self, broker_id: int) -> None:
        self.restart(broker_id)
        self.heartbeat(broker_id, shuts_down=False, behind=False)

    @rule(broker_id=broker_ids)
    def unregister(self, broker_id: int) -> None:
        """Operators unregister a broker that will not return."""
        if broker_id not in self.up:
            self.commit(
                unregister_broker(
                    self.image, UnregisterBrokerRequest(broker_id=broker_id), self.context
                )
            )

    @rule(key=partition_keys)
    def write(self, key: Key) -> None:
        """Write a record. It is acknowledged if all in-sync replicas are up and enough; otherwise
        it is only in the leader's log."""
        now, model, record = state(self.image, key), self.models[key], next(self.ids)
        if now.leader not in self.up or now.leader_recovery_state == RECOVERING:
            return
        if set(now.isr) <= self.up and len(now.isr) >= (MIN_ISR if key[0] == SAFE else 1):
            for member in now.isr:
                model.logs[member] = [*model.logs[now.leader], record]
            model.acknowledged.add(record)
        else:
            model.logs[now.leader].append(record)

    @rule(key=partition_keys, members=st.sets(broker_ids))
    def propose(self, key: Key, members: set[int]) -> None:
        """The leader proposes an ISR of the members that are up, which have caught up."""
        now, model = state(self.image, key), self.models[key]
        if now.leader not in self.up:
            return
        isr = [
            replica
            for replica in now.replicas
            if replica == now.leader or replica in members & self.up
        ]
        for follower in set(isr) - set(now.isr):
            model.logs[follower] = list(model.logs[now.leader])
        self.commit(self.proposed(key, now, now.leader, isr))

    def proposed(
        self, key: Key, now: PartitionState, leader: int, isr: list[int]
    ) -> ControllerResult[Any]:
        members = tuple(
            Proposal.NewIsrWithEpoch(broker_id=member, broker_epoch=self.epochs[member])
            for member in isr
        )
        proposal = Proposal(
            partition_index=key[1],
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            new_isr_with_epochs=members,
        )
        topic = AlterPartitionRequest.Topic(topic_id=key[0], partitions=(proposal,))
        request = AlterPartitionRequest(
            broker_id=leader, broker_epoch=self.epochs[leader], topics=(topic,)
        )
        return alter_partition(self.image, request, self.context)

    @rule(key=partition_keys, back=st.integers(1, 3), is_leader_epoch=st.booleans())
    def propose_with_a_stale_epoch(self, key: Key, back: int, is_leader_epoch: bool) -> None:
        """Rule 12: refused without effect."""
        now = state(self.image, key)
        stale = (
            replace(now, leader_epoch=now.leader_epoch - back)
            if is_leader_epoch
            else replace(now, partition_epoch=now.partition_epoch - back)
        )
        for leader in self.up & self.image.brokers.keys():
            assert self.proposed(key, stale, leader, [leader]).records == ()

    @rule()
    def rebalance(self) -> None:
        self.commit(rebalance_leaders(self.image, self.context))

    @rule()
    def elect_unclean_where_allowed(self) -> None:
        self.commit(elect_unclean_leaders(self.image, self.context))

    @rule(key=partition_keys)
    def elect_preferred(self, key: Key) -> None:
        self.commit(
            elect_leaders(self.image, election_request(self.image, key, PREFERRED), self.context)
        )

    @rule(key=partition_keys)
    def elect_unclean(self, key: Key) -> None:
        self.unclean_requested = True
        self.commit(
            elect_leaders(self.image, election_request(self.image, key, UNCLEAN), self.context)
        )
        self.unclean_requested = False

    # Invariants

    @invariant()
    def partitions_are_consistent(self) -> None:
        active = {member.id for member in self.image.brokers.values() if member.is_active}
        for key in self.models:
            now = state(self.image, key)
            members, eligible = set(now.isr), set(now.eligible_leader_replicas)
            assert len(members) == len(now.isr)
            assert members <= set(now.replicas)
            assert eligible <= set(now.replicas)
            assert not members & eligible
            assert members <= active, "a fenced or leaving broker is in the ISR"
            if now.leader == NO_LEADER:
                assert not now.isr, "a live in-sync replica, but no leader"
            else:
                assert now.leader in members

    @invariant()
    def live_isr_members_have_all_acknowledged_records(self) -> None:
        for key, model in self.models.items():
            now = state(self.image, key)
            if key[0] == SAFE:
                for member in set(now.isr) & self.up:
                    assert model.acknowledged <= set(model.logs[member])

    def teardown(self) -> None:
        """Replaying the log and loading a snapshot both give the image that was decided on."""
        assert initial_image().replay(self.committed, self.image.offset)[0] == self.image
        assert (
            MetadataImage.empty().replay(self.image.records(), self.image.offset)[0] == self.image
        )


def state(image: MetadataImage, key: Key) -> PartitionState:
    topic = image.topic_by_id(key[0])
    assert topic is not None
    return topic.partitions[key[1]]


def election_request(image: MetadataImage, key: Key, kind: int) -> ElectLeadersRequest:
    topic_partition = ElectLeadersRequest.TopicPartition(
        topic=image.topic_names[key[0]], partitions=(key[1],)
    )
    return ElectLeadersRequest(election_type=kind, topic_partitions=(topic_partition,))


def no_session(_broker_id: int) -> bool:
    return False


def registration(
    broker_id: int, incarnation: int, previous_epoch: int
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=UUID(int=100_000 + incarnation),
        features=tuple(
            BrokerRegistrationRequest.Feature(
                name=feature.name,
                min_supported_version=feature.first,
                max_supported_version=feature.last,
            )
            for feature in SUPPORTED_FEATURES
        ),
        log_dirs=(directory(broker_id),),
        previous_broker_epoch=previous_epoch,
    )


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
