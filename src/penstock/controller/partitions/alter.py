"""AlterPartition: a leader proposes who is in sync. PURE.

The leader counts on the proposal before it is decided, so that it must never be taken for another
state of the partition than the one it was made on: leader epoch, partition epoch and the broker
epochs of all members are checked (invariant 12).
"""

from __future__ import annotations

from uuid import UUID

from penstock.controller.brokers.registration import check_broker_epoch
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.partitions.candidates import Candidates
from penstock.controller.partitions.change import (
    RECOVERED,
    RECOVERING,
    Election,
    Wanted,
    change_partition,
)
from penstock.controller.partitions.leadership import Changes
from penstock.controller.topics.rules import AllTopicRules
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.topics_delta import NO_LEADER_CHANGE, apply_partition_change
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

Proposal = AlterPartitionRequest.Topic.Partition
Answer = AlterPartitionResponse.Topic.Partition
# Broker ids and epochs.
Members = list[tuple[int, int]]

# A member without a broker epoch is not checked for it: version 2 has none.
ANY_EPOCH = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, node: ControllerContext
) -> Decision[AlterPartitionResponse]:
    """Each partition succeeds or fails on its own."""
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Decision((), AlterPartitionResponse(error_code=error.code))
    altering = _Altering(image, request.broker_id, node)
    topics = tuple(
        AlterPartitionResponse.Topic(
            topic_id=topic.topic_id,
            partitions=tuple(
                altering.decide(topic.topic_id, proposal) for proposal in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return Decision(
        tuple(altering.changes.records),
        AlterPartitionResponse(topics=topics),
        tuple(altering.changes.notes),
    )


class _Altering:
    """One request on its way through its partitions."""

    def __init__(self, image: MetadataImage, leader: int, node: ControllerContext) -> None:
        self.changes = Changes()
        self._image = image
        self._leader = leader
        self._rules = AllTopicRules(image, node)
        self._candidates = Candidates(image)
        # Partitions that this request changed already: a second proposal for one builds on the
        # first, and so is out of date.
        self._changed: dict[tuple[UUID, int], PartitionState] = {}

    def decide(self, topic_id: UUID, proposal: Proposal) -> Answer:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_ID)
        index = proposal.partition_index
        state = self._changed.get((topic.id, index)) or topic.partitions.get(index)
        if state is None:
            return _refused(proposal, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        members = _members(proposal)
        isr = tuple(broker_id for broker_id, _epoch in members)
        refusal = (
            _stale(state, proposal, self._leader)
            or _malformed(state, proposal, isr)
            or self._ineligible(members)
        )
        return (
            self._accept(topic, index, state, proposal, isr)
            if refusal is None
            else _refused(proposal, refusal)
        )

    def _accept(
        self,
        topic: TopicImage,
        index: int,
        state: PartitionState,
        proposal: Proposal,
        isr: tuple[int, ...],
    ) -> Answer:
        rules = self._rules.of(topic)
        election = Election.UNCLEAN if rules.unclean else Election.ONLINE
        wanted = Wanted(isr=isr, recovery_state=proposal.leader_recovery_state)
        change = change_partition(topic, index, state, rules, self._candidates, election, wanted)
        if change is None:
            return _answer(index, state)
        self.changes.add(change)
        after = self._changed[topic.id, index] = apply_partition_change(state, change.record)
        if change.record.leader not in (NO_LEADER_CHANGE, self._leader):
            # The end of a reassignment took the leader away. It is both done and refused, so that
            # the broker asks for the new state.
            return _refused(proposal, ErrorCode.NEW_LEADER_ELECTED)
        return _answer(index, after)

    def _ineligible(self, members: Members) -> ErrorCode | None:
        """Nobody comes in who is not up, or who made the progress in another life."""
        for broker_id, epoch in members:
            broker = self._image.brokers.get(broker_id)
            if broker is None or not broker.is_active or epoch not in (ANY_EPOCH, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return None


def _members(proposal: Proposal) -> Members:
    if proposal.new_isr_with_epochs:
        return [(member.broker_id, member.broker_epoch) for member in proposal.new_isr_with_epochs]
    return [(broker_id, ANY_EPOCH) for broker_id in proposal.new_isr]


def _refused(proposal: Proposal, code: ErrorCode) -> Answer:
    return Answer(partition_index=proposal.partition_index, error_code=code)


def _stale(state: PartitionState, proposal: Proposal, leader: int) -> ErrorCode | None:
    """Whoever knows more than we do has heard of another active controller."""
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    return (
        ErrorCode.INVALID_UPDATE_VERSION
        if proposal.partition_epoch < state.partition_epoch
        else None
    )


def _malformed(state: PartitionState, proposal: Proposal, isr: tuple[int, ...]) -> ErrorCode | None:
    recovering = proposal.leader_recovery_state == RECOVERING
    if (
        proposal.leader_recovery_state not in (RECOVERED, RECOVERING)
        or len(set(isr)) != len(isr)
        or not set(isr) <= set(state.replicas)
        or state.leader not in isr
        or (recovering and (len(isr) > 1 or state.leader_recovery_state == RECOVERED))
    ):
        return ErrorCode.INVALID_REQUEST
    return None


def _answer(index: int, state: PartitionState) -> Answer:
    return Answer(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )
